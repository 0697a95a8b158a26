// Direct convolutions, row of pixels by row of pixels: the forward pass, and the gradient of the data.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/conv_taps.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep::cpu {

class RowPass {
 public:
  // `depthwise`: each channel of the result sums over its own channel alone.
  RowPass(std::vector<AxisClass> rows, std::vector<AxisClass> columns, const ConvAxis& kernel_columns,
          std::int64_t from_width, std::int64_t to_width, std::int64_t taps, std::int64_t images,
          const StridedImages& from, const StridedImages& to, bool depthwise = false);

  // Number of f32 for each thread.
  std::int64_t scratch() const { return from_scratch() + (to_.vectors() ? 0 : group_ * to_.pixels * kTileColumns); }

  // `bias` is padded to blocks, or null.
  void run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const;

 private:
  struct Steps {
    std::vector<Step> steps;
    std::int64_t terms = 0;  // per step
  };
  // Pixels of a group of images, image by image, that read through the same taps.
  struct PixelClass {
    Steps whole, part;  // for a chunk of whole blocks, and for the remaining channels
    std::vector<std::int64_t> from, to;
  };

  PixelClass make_class(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width,
                        std::int64_t from_width, std::int64_t to_width, const StridedImages& from,
                        const StridedImages& to) const;

  // Makes steps over all taps of `blocks` blocks of `channels` channels. Taps that read adjacent pixels become one step
  // if no other channels lie between the channels of these pixels.
  Steps make_steps(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width, std::int64_t from_width,
                   const StridedImages& from, std::int64_t blocks, std::int64_t channels) const;

  // Computes columns [column, column + kTileColumns) of `count` images.
  void run_tile(const StridedImages& in, std::int64_t first, std::int64_t count, std::int64_t column,
                const float* packed, const float* bias, float* to_panel) const;

  std::int64_t from_scratch() const { return in_place() ? 0 : round_up(group_ * readable(nullptr).image); }

  // The images as the kernel reads them: in place if possible, otherwise in `from_panel`.
  bool in_place() const { return depthwise_ ? from_.vectors() : from_.readable(); }
  StridedImages readable(float* from_panel) const;

  StridedImages from_, to_;
  std::int64_t images_, taps_;
  bool depthwise_;
  std::int64_t chunk_;  // blocks of channels per partial sum
  std::int64_t group_;  // images computed together
  std::vector<PixelClass> classes_;
};

}  // namespace lockstep::cpu
