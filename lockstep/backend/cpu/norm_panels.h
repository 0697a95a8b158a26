// Walks over images [N, C, H, W] of any layout in panels of up to 64 columns, where column j of group g belongs to
// channel g * width + j % width. Loops over a panel do not depend on the layout.
//
//   channels_last  width 64: a panel is 64 channels of up to 256 pixels, `stride` = C apart
//   blocked16      width 16: 64 columns are 4 neighboring pixels of one channel block
//   plain          width 1: 64 columns are 64 neighboring pixels of one channel
//
// A unit, the panels of one block of one group, has at most 256 * 64 elements: few enough to sum its columns in f32.
// Units are few enough to sum in f64.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/tensor/view.h"

namespace lockstep::cpu {

inline constexpr std::int64_t kColumns = 64;

// Element (row, column) of the panel has index offset + row * stride + column in the array.
struct Panel {
  std::int64_t offset, rows, stride, columns;
};

class NormPanels {
 public:
  // x may be empty, but must have channels.
  explicit NormPanels(const View& x)
      : samples_(x.shape[0] * x.shape[2] * x.shape[3]), channels_(x.shape[1]),
        width_(x.layout == Layout::channels_last ? kColumns
               : x.layout == Layout::blocked16   ? kChannelBlock
                                                 : 1),
        groups_((channels_ + width_ - 1) / width_), images_(x.shape[0]), plane_(x.shape[2] * x.shape[3] * width_) {
    if (samples_ == 0) return;
    if (width_ == kColumns) {
      step_ = kRows;
      blocks_ = (samples_ + step_ - 1) / step_;
    } else {
      step_ = std::max<std::int64_t>(kPiece / plane_, 1);
      pieces_ = (plane_ + kPiece - 1) / kPiece;
      blocks_ = pieces_ * ((images_ + step_ - 1) / step_);
    }
  }

  std::int64_t width() const { return width_; }
  std::int64_t groups() const { return groups_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t units() const { return groups_ * blocks_; }
  // Channels rounded up to whole groups: the length of arrays of parameters and partial sums.
  std::int64_t padded_channels() const { return groups_ * width_; }

  // Number of samples of one channel, in all blocks or in one.
  std::int64_t samples() const { return samples_; }
  std::int64_t samples(std::int64_t block) const {
    if (width_ == kColumns) return std::min(step_, samples_ - block * step_);
    const Span s = span(block);
    return (s.image_end - s.image_begin) * (s.end - s.begin) / width_;
  }

  // Calls f(panel) for each panel of one unit, in the order of memory.
  template <typename F>
  void for_each(std::int64_t block, std::int64_t group, const F& f) const {
    if (width_ == kColumns) {
      const std::int64_t columns = std::min(kColumns, channels_ - group * kColumns);
      f(Panel{block * step_ * channels_ + group * kColumns, samples(block), channels_, columns});
      return;
    }
    const Span s = span(block);
    const std::int64_t rows = (s.end - s.begin) / kColumns, rest = (s.end - s.begin) % kColumns;
    for (std::int64_t i = s.image_begin; i < s.image_end; ++i) {
      const std::int64_t offset = (i * groups_ + group) * plane_ + s.begin;
      if (rows > 0) f(Panel{offset, rows, kColumns, kColumns});
      if (rest > 0) f(Panel{offset + rows * kColumns, 1, kColumns, rest});
    }
  }

 private:
  static constexpr std::int64_t kRows = 256;
  static constexpr std::int64_t kPiece = kRows * kColumns;

  // Elements [begin, end) of the planes of some images.
  struct Span {
    std::int64_t image_begin, image_end, begin, end;
  };
  Span span(std::int64_t block) const {
    if (pieces_ == 1) return {block * step_, std::min((block + 1) * step_, images_), 0, plane_};
    const std::int64_t image = block / pieces_, piece = block % pieces_;
    return {image, image + 1, piece * kPiece, std::min((piece + 1) * kPiece, plane_)};
  }

  std::int64_t samples_, channels_, width_, groups_, images_;
  // Number of contiguous elements of one group in one image.
  std::int64_t plane_;
  // Rows (channels_last) or images per block. A plane larger than a block is cut into pieces.
  std::int64_t step_ = 0, pieces_ = 1;
  std::int64_t blocks_ = 0;
};

}  // namespace lockstep::cpu
