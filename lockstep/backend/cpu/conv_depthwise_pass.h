// Depthwise convolutions: the gradient of the weights. RowPass computes the other passes.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/conv_group.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep::cpu {

// A vector holds 16 channels. The taps are the rows of a register tile, which reads a padded copy of x. The order of
// the sums is that of WeightPass.
class DepthwiseWeightPass {
 public:
  DepthwiseWeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy);

  // Number of f32.
  std::int64_t scratch(std::int64_t threads) const { return sums_size() + threads * thread_scratch(); }

  void run(const KernelContext& context, float* dw, float* scratch) const;

 private:
  std::int64_t sums_size() const { return chunks_.sums_size(p_.images, x_.blocks() * p_.taps() * kBlock); }
  // Parts of a thread's memory, in f32: padded rows of x, and copies of x and dy that vectors can read.
  std::int64_t padded_size() const { return chunks_.images * padded_rows_ * padded_columns_ * kBlock; }
  std::int64_t x_copy_size() const { return x_.vectors() ? 0 : padded_rows_ * p_.columns.input * kBlock; }
  std::int64_t dy_copy_size() const {
    return dy_.vectors() ? 0 : chunks_.images * chunks_.rows * p_.columns.output * kBlock;
  }
  std::int64_t thread_scratch() const { return padded_size() + x_copy_size() + dy_copy_size(); }

  // Computes the partial sum of a chunk for a block of channels: 16 f32 for each tap.
  void run_chunk(std::int64_t chunk, std::int64_t block, float* sums, float* scratch) const;
  // Copies the rows of an image that output rows [begin, end) read. Padding is 0.
  void pad(const StridedImages& image, std::int64_t begin, std::int64_t end, float* padded, float* copy) const;

  ConvGroup p_;
  StridedImages x_, dy_;
  WeightChunks chunks_;
  std::int64_t padded_rows_, padded_columns_;
  std::vector<Step> pixels_;  // offsets of a chunk's pixels in the padded rows and in dy
  std::vector<std::int64_t> taps_, sums_;
};

}  // namespace lockstep::cpu
