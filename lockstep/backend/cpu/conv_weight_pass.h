// Direct convolutions: the gradients of weights and bias.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/conv_group.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep::cpu {

// The gradient of the weights. The rows of a register tile are the 16 input channels of a block, and pixels omit
// padding. If blocks are not full, the rows are the input channels of adjacent taps, in a padded copy of x.
class WeightPass {
 public:
  // `only_bias`: for run_bias() alone.
  WeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy, bool only_bias = false);

  // Number of f32 for each thread.
  std::int64_t scratch() const { return x_scratch() + padded_scratch() + dy_scratch(); }
  // Number of f32 in the gradient as the kernels compute it, by blocks of outputs.
  std::int64_t packed_size() const { return blocks_of(p_.outputs) * kBlock * p_.inputs * p_.taps(); }

  void run(const KernelContext& context, float* packed, float* dw, float* scratch) const;

  // The gradient of the bias: sums of dy, in the same chunks.
  void run_bias(const KernelContext& context, float* db, float* scratch) const;

 private:
  std::int64_t padded_pixels() const { return padded_rows_ * padded_columns_; }
  // Returns the offset, in a padded copy, from the element that the first tap reads to the one that `tap` reads.
  std::int64_t tap_offset(std::int64_t tap) const {
    const std::int64_t row = tap / p_.columns.taps * p_.rows.dilation, column = tap % p_.columns.taps;
    return (row * padded_columns_ + column * p_.columns.dilation) * p_.inputs;
  }
  bool copies_x() const { return blocks_ ? !x_.readable() : !(x_.readable() && x_.pixel == x_.channels); }
  std::int64_t x_scratch() const { return !only_bias_ && copies_x() ? round_up(group_ * x_.pixels * x_.channels) : 0; }
  std::int64_t padded_scratch() const {
    return only_bias_ || blocks_ ? 0 : round_up(group_ * padded_pixels() * x_.channels);
  }
  std::int64_t dy_scratch() const { return dy_.vectors() ? 0 : group_ * dy_.pixels * round_up(dy_.channels); }

  // Returns x as the kernels read it: in place, or as a copy at `data`.
  StridedImages input_panel(float* data) const;

  StridedImages input(std::int64_t first, std::int64_t count, float* panel) const;

  StridedImages gradient(std::int64_t first, std::int64_t count, float* panel) const;

  // Returns the pixels of a chunk that meet a tap inside the image.
  std::vector<PixelPair> make_pixels(std::int64_t chunk, std::int64_t tap, const StridedImages& x,
                                     const StridedImages& dy) const;
  // Makes pixels for sums of dy alone; x stays at one element.
  std::vector<PixelPair> make_bias_pixels(std::int64_t chunk, const StridedImages& dy) const;
  // Calls f(image, row, column) for each output of a chunk.
  template <typename F>
  void for_each_pixel(std::int64_t chunk, const F& f) const {
    for (std::int64_t n = 0; n < chunks_.images; ++n) {
      for (std::int64_t r = chunk * chunks_.rows; r < std::min((chunk + 1) * chunks_.rows, p_.rows.output); ++r) {
        for (std::int64_t c = 0; c < p_.columns.output; ++c) f(n, r, c);
      }
    }
  }

  // Calls f(first image, chunk, number of images) for the chunks of `count` images. One chunk at a time stays in the
  // first-level cache.
  template <typename F>
  void for_each_chunk(std::int64_t count, const F& f) const {
    for (std::int64_t n = 0; n < count; n += chunks_.images) {
      for (std::int64_t chunk = 0; chunk < chunks_.count; ++chunk) f(n, chunk, std::min(chunks_.images, count - n));
    }
  }

  // Adds the pixels of a chunk of `images` images.
  void add(PixelProduct& p, const std::vector<PixelPair>& pixels, std::int64_t images) const;

  void run_unit(const StridedImages& x, const StridedImages& dy, std::int64_t first, std::int64_t count,
                std::int64_t tile, std::int64_t block, float* packed) const;

  // Converts a part of the gradient to [O, I, taps].
  void unpack(const float* packed, std::int64_t tile, std::int64_t block, float* dw) const;

  ConvGroup p_;
  StridedImages x_, dy_;
  bool blocks_, only_bias_;
  std::int64_t output_pixels_, padded_rows_, padded_columns_;
  WeightChunks chunks_;
  std::int64_t group_;                          // images computed together
  std::vector<std::vector<PixelPair>> pixels_;  // by chunk, then tap
  std::vector<std::vector<PixelPair>> bias_pixels_;
};

}  // namespace lockstep::cpu
