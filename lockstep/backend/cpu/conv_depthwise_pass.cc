#include "lockstep/backend/cpu/conv_depthwise_pass.h"

#include <algorithm>

namespace lockstep::cpu {
namespace {

// Returns the images themselves if their vectors() is true, otherwise a copy in `room`.
StridedImages as_vectors(const StridedImages& images, std::int64_t count, float* room) {
  if (images.vectors()) return images;
  const StridedImages copy = StridedImages::blocked(room, images.channels, images.pixels);
  copy_images(images, copy, count);
  return copy;
}

}  // namespace

DepthwiseWeightPass::DepthwiseWeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy)
    : p_(p), x_(x), dy_(dy), chunks_(p), padded_rows_(p.rows.extent(chunks_.rows)),
      padded_columns_(p.columns.extent(p.columns.output)) {
  const std::int64_t dy_image = dy.vectors() ? dy.image : chunks_.rows * p.columns.output * kBlock;
  for (std::int64_t n = 0; n < chunks_.images; ++n) {
    for (std::int64_t r = 0; r < chunks_.rows; ++r) {
      for (std::int64_t c = 0; c < p.columns.output; ++c) {
        const std::int64_t row = n * padded_rows_ + r * p.rows.stride;
        pixels_.push_back({(row * padded_columns_ + c * p.columns.stride) * kBlock,
                           n * dy_image + (r * p.columns.output + c) * kBlock});
      }
    }
  }
  for (std::int64_t tap = 0; tap < p.taps(); ++tap) {
    const std::int64_t row = tap / p.columns.taps * p.rows.dilation, column = tap % p.columns.taps * p.columns.dilation;
    taps_.push_back((row * padded_columns_ + column) * kBlock);
    sums_.push_back(tap * kBlock);
  }
}

void DepthwiseWeightPass::run(const KernelContext& context, float* dw, float* scratch) const {
  float* const panels = scratch + sums_size();
  const std::int64_t taps = p_.taps(), blocks = x_.blocks();
  const float* const total = chunks_.sum(context, p_.images, blocks, blocks * taps * kBlock, scratch,
                                         [&](std::int64_t thread, std::int64_t chunk, std::int64_t block, float* sums) {
                                           run_chunk(chunk, block, sums, panels + thread * thread_scratch());
                                         });
  for (std::int64_t c = 0; c < p_.outputs; ++c) {
    for (std::int64_t t = 0; t < taps; ++t) dw[c * taps + t] = total[(c / kBlock * taps + t) * kBlock + c % kBlock];
  }
}

void DepthwiseWeightPass::run_chunk(std::int64_t chunk, std::int64_t block, float* sums, float* scratch) const {
  float* const x_copy = scratch + padded_size();
  const std::int64_t n = chunk / chunks_.count * chunks_.images, images = std::min(chunks_.images, p_.images - n);
  const std::int64_t begin = chunk % chunks_.count * chunks_.rows, end = std::min(begin + chunks_.rows, p_.rows.output);
  const std::int64_t pixels = (end - begin) * p_.columns.output, channel = block * kBlock,
                     channels = std::min(kBlock, p_.outputs - channel);
  for (std::int64_t i = 0; i < images; ++i) {
    pad(x_.images_from(n + i).slice(channel, channels), begin, end,
        scratch + i * padded_rows_ * padded_columns_ * kBlock, x_copy);
  }
  const StridedImages dy = dy_.images_from(n).slice(channel, channels).pixels_from(begin * p_.columns.output, pixels);
  f32_kernels().column_product({.x = scratch,
                                .x_rows = taps_.data(),
                                .y = sums,
                                .y_rows = sums_.data(),
                                .rows = p_.taps(),
                                .steps = pixels_.data(),
                                .step_count = images * pixels,
                                .w = as_vectors(dy, images, x_copy + x_copy_size()).f32(),
                                .blocks = 1});
}

void DepthwiseWeightPass::pad(const StridedImages& image, std::int64_t begin, std::int64_t end, float* padded,
                              float* copy) const {
  const std::int64_t width = p_.columns.input, left = std::min(p_.columns.padding, padded_columns_);
  const std::int64_t columns = std::min(width, padded_columns_ - left);
  const std::int64_t first = begin * p_.rows.stride - p_.rows.padding, rows = p_.rows.extent(end - begin);
  // Rows [inside, past) lie in the image.
  const std::int64_t inside = std::clamp<std::int64_t>(first, 0, p_.rows.input),
                     past = std::clamp<std::int64_t>(first + rows, inside, p_.rows.input);
  const StridedImages in = as_vectors(image.pixels_from(inside * width, (past - inside) * width), 1, copy);
  std::fill_n(padded, rows * padded_columns_ * kBlock, 0.f);
  for (std::int64_t row = inside; row < past; ++row)
    std::copy_n(in.f32() + (row - inside) * width * kBlock, columns * kBlock,
                padded + ((row - first) * padded_columns_ + left) * kBlock);
}

}  // namespace lockstep::cpu
