#include "lockstep/backend/cpu/conv_thin_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/transpose.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::cpu {
namespace {

// Returns the image in f32: the image itself, or a copy in `room`.
StridedImages as_f32(const StridedImages& image, float* room) {
  if (image.dtype == DType::f32) return image;
  const StridedImages copy = StridedImages::channels_last(room, image.channels, image.pixels);
  copy_images(image, copy, 1);
  return copy;
}

std::int64_t offset_of(const StridedImages& image, std::int64_t channel) {
  return channel / kBlock * image.block + channel % kBlock * image.channel;
}

// Returns the axis as a pass sees it: `input` is what the pass reads.
ConvAxis seen(ConvAxis axis, ConvPass direction) {
  if (direction == ConvPass::backward_data) std::swap(axis.input, axis.output);
  return axis;
}

// Returns the distance from a column of the result to the column that it reads through a tap.
std::int64_t reach(const ConvAxis& a, bool backward, std::int64_t tap) {
  return backward ? a.padding - tap * a.dilation : tap * a.dilation - a.padding;
}

// Returns the number of f32 that a converted copy of an image needs.
std::int64_t converted_size(const StridedImages& image) {
  return image.dtype == DType::f32 ? 0 : round_up(image.pixels * image.channels);
}

// Returns the number of f32 that ThinWeightPass keeps for a column of taps: the elements of x that its weights
// multiply, and a 1 for the bias.
std::int64_t column_height(const ConvGroup& p) { return p.rows.taps * p.inputs + 1; }

std::int64_t thin_weights(const ConvGroup& p) { return round_up(p.columns.taps * column_height(p)); }

// Returns the number of tiles in which a row's pixels are computed. Each tile reads 32 columns.
std::int64_t row_tiles(const ConvAxis& a) { return ceil_div(a.output, kTileColumns - a.span()); }

// to[c * to_stride + x] = channel c of the image's pixel first + x, for `count` x.
void copy_channels(const StridedImages& image, std::int64_t first, std::int64_t count, float* to,
                   std::int64_t to_stride) {
  for (std::int64_t c = 0; c < image.channels; c += kBlock, to += kBlock * to_stride) {
    const std::int64_t channels = std::min(kBlock, image.channels - c);
    const float* const block = image.f32() + first * image.pixel + offset_of(image, c);
    if (image.pixel > 1) {
      transpose(block, image.pixel, count, channels, to, to_stride);
    } else {
      for (std::int64_t i = 0; i < channels; ++i) std::copy_n(block + i * image.channel, count, to + i * to_stride);
    }
  }
}

// Writes `width` pixels of a row, which lie side by side in `sums`, to the channels of an image.
void store_row(float* sums, const float* bias, std::int64_t width, const StridedImages& to, std::int64_t first) {
  float* const out = to.f32() + first * to.pixel;
  vectorized([&] {
    for (std::int64_t c = 0; bias && c < to.channels; ++c) {
      for (std::int64_t i = 0; i < kTileColumns; ++i) sums[c * kTileColumns + i] += bias[c];
    }
    if (to.pixel > 1) return transpose(sums, kTileColumns, to.channels, width, out, to.pixel);
    for (std::int64_t c = 0; c < to.channels; ++c) std::copy_n(sums + c * kTileColumns, width, out + c * to.channel);
  });
}

}  // namespace

bool ThinPass::pays(const ConvGroup& p, ConvPass direction) {
  const ConvAxis columns = seen(p.columns, direction);
  if (p.depthwise || p.rows.stride != 1 || p.columns.stride != 1 || columns.span() >= kBlock || columns.output == 0)
    return false;
  const std::int64_t channels = direction == ConvPass::backward_data ? p.inputs : p.outputs, tiles = row_tiles(columns);
  return 2 * channels * tiles * round_up(ceil_div(columns.output, tiles)) <= round_up(channels) * columns.output;
}

ThinPass::ThinPass(const ConvGroup& p, ConvPass direction, const StridedImages& from, const StridedImages& to)
    : rows_(seen(p.rows, direction)), columns_(seen(p.columns, direction)),
      backward_(direction == ConvPass::backward_data), from_(from), to_(to), images_(p.images), taps_(p.taps()),
      chunk_(sum_blocks(p.taps(), from.blocks())),
      left_(std::min(reach(columns_, backward_, 0), reach(columns_, backward_, columns_.taps - 1))),
      tiles_(row_tiles(columns_)), width_(ceil_div(columns_.output, tiles_)) {
  for (AxisClass& c : backward_ ? backward_classes(p.rows) : forward_classes(p.rows))
    classes_.push_back(
        {std::move(c.positions), make_steps(c, chunk_, kBlock), make_steps(c, 1, from.channels % kBlock)});
  for (std::int64_t c = 0; c < to.channels; ++c) {
    weight_rows_.push_back(c * terms());
    sum_rows_.push_back(c * kTileColumns);
  }
}

std::vector<Step> ThinPass::make_steps(const AxisClass& row, std::int64_t blocks, std::int64_t channels) const {
  std::vector<Step> steps;
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (const auto& [tap_row, offset] : row.taps) {
      for (std::int64_t tap = 0; tap < columns_.taps; ++tap) {
        steps.push_back(
            {b * taps_ * kBlock + (tap_row * columns_.taps + tap) * channels,
             (b * kBlock + offset * from_.channels) * kTileColumns + reach(columns_, backward_, tap) - left_});
      }
    }
  }
  return steps;
}

void ThinPass::arrange(const float* packed, float* weights) const {
  for (std::int64_t c = 0; c < from_.channels; c += kBlock) {
    const std::int64_t rows = taps_ * std::min(kBlock, from_.channels - c);
    for (std::int64_t o = 0; o < to_.channels; ++o) {
      for (std::int64_t i = 0; i < rows; ++i)
        weights[o * terms() + c * taps_ + i] = packed[(c * taps_ + i) * kTileColumns + o];
    }
  }
}

void ThinPass::run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const {
  for_each_thread(context, images_, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
    float* const weights = scratch + thread * this->scratch();
    float* const panel = weights + weights_size();
    float* const sums = panel + panel_size();
    float* const result = sums + round_up(to_.channels * kTileColumns);
    float* const source = result + converted_size(to_);
    arrange(packed, weights);
    for (std::int64_t n = begin; n < end; ++n) {
      const StridedImages target = to_.images_from(n);
      const bool in_place = to_.dtype == DType::f32;
      const StridedImages to = in_place ? target : StridedImages::channels_last(result, to_.channels, to_.pixels);
      const StridedImages from = as_f32(from_.images_from(n), source);
      for (std::int64_t column = 0; column < columns_.output; column += width_) {
        fill(from, column + left_, panel);
        for (const RowClass& c : classes_) run_rows(c, to, column, panel, weights, bias, sums);
      }
      if (!in_place) copy_images(to, target, 1);
    }
  });
}

void ThinPass::fill(const StridedImages& image, std::int64_t column, float* panel) const {
  const std::int64_t begin = std::clamp<std::int64_t>(-column, 0, kTileColumns),
                     end = std::clamp<std::int64_t>(columns_.input - column, begin, kTileColumns);
  const std::int64_t row_size = image.channels * kTileColumns;
  std::fill_n(panel, rows_.input * row_size + kTileColumns, 0.f);
  vectorized([&] {
    for (std::int64_t row = 0; row < rows_.input; ++row)
      copy_channels(image, row * columns_.input + column + begin, end - begin, panel + row * row_size + begin,
                    kTileColumns);
  });
}

void ThinPass::run_rows(const RowClass& c, const StridedImages& to, std::int64_t column, const float* panel,
                        const float* weights, const float* bias, float* sums) const {
  const std::int64_t width = std::min(width_, columns_.output - column), channels = to.channels;
  RowProduct p{.x_rows = weight_rows_.data(),
               .y = sums,
               .y_rows = sum_rows_.data(),
               .rows = channels,
               .y_block = kBlock,
               .blocks = blocks_of(width)};
  for (const auto& [row, from] : c.rows) {
    // As in RowPass, a partly used block is its own chunk.
    const std::int64_t blocks = from_.blocks(), full = from_.channels / kBlock;
    for (std::int64_t b = 0, height; b < blocks; b += height) {
      height = b < full ? std::min(chunk_, full - b) : 1;
      const std::vector<Step>& steps = b < full ? c.whole : c.part;
      p.steps = steps.data();
      p.step_count = static_cast<std::int64_t>(steps.size()) / (b < full ? chunk_ : 1) * height;
      p.terms = b < full ? kBlock : from_.channels % kBlock;
      p.x = weights + b * taps_ * kBlock;
      p.w = panel + (from * from_.channels + b * kBlock) * kTileColumns;
      p.accumulate = b > 0;
      f32_kernels().row_product(p);
    }
    store_row(sums, bias, width, to, row * columns_.output + column);
  }
}

bool ThinWeightPass::pays(const ConvGroup& p) {
  return !p.depthwise && p.columns.dilation == 1 && p.columns.extent(p.columns.output) * column_height(p) <= kPanel &&
         2 * p.outputs * thin_weights(p) <= p.inputs * p.taps() * round_up(p.outputs);
}

ThinWeightPass::ThinWeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy)
    : p_(p), x_(x), dy_(dy), chunks_(p), height_(column_height(p)), width_(thin_weights(p)),
      padded_rows_(p.rows.extent(std::min(chunks_.rows, p.rows.output))),
      padded_columns_(p.columns.extent(p.columns.output)) {
  // All chunks are alike, but the last ones may have fewer pixels.
  const std::int64_t rows = std::min(chunks_.rows, p.rows.output), columns = p.columns.output;
  const bool in_place = dy.readable();
  const std::int64_t image = in_place ? dy.image : dy.channels * rows * columns;
  const std::int64_t pixel = in_place ? dy.pixel : dy.channels;
  for (std::int64_t n = 0; n < chunks_.images; ++n) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        pixels_.push_back({n * image + (r * columns + c) * pixel,
                           ((n * rows + r) * padded_columns_ + c * p.columns.stride) * height_});
      }
    }
  }
}

std::int64_t ThinPass::scratch() const {
  return weights_size() + panel_size() + round_up(to_.channels * kTileColumns) + converted_size(to_) +
         converted_size(from_);
}

std::int64_t ThinWeightPass::scratch(std::int64_t threads) const {
  return chunks_.sums_size(p_.images, p_.outputs * width_) + threads * thread_scratch();
}

std::int64_t ThinWeightPass::padded_size() const { return round_up(padded_rows_ * padded_columns_ * p_.inputs); }

std::int64_t ThinWeightPass::x_copy_size() const {
  return x_.dtype == DType::f32 ? 0 : round_up(std::min(padded_rows_, p_.rows.input) * p_.columns.input * p_.inputs);
}

// Includes kBlock f32 past the last column, which vectors of the last weights read.
std::int64_t ThinWeightPass::columns_size() const {
  return round_up(chunks_.images * std::min(chunks_.rows, p_.rows.output) * padded_columns_ * height_ + kBlock);
}

std::int64_t ThinWeightPass::thread_scratch() const {
  return padded_size() + columns_size() + x_copy_size() +
         (dy_.readable() ? 0 : chunks_.images * round_up(dy_.pixels * dy_.channels));
}

void ThinWeightPass::run(const KernelContext& context, float* dw, float* db, float* scratch) const {
  const std::int64_t size = p_.outputs * width_;
  float* const panels = scratch + chunks_.sums_size(p_.images, size);
  const float* const total = chunks_.sum(context, p_.images, 1, size, scratch,
                                         [&](std::int64_t thread, std::int64_t chunk, std::int64_t, float* sums) {
                                           run_chunk(chunk, sums, panels + thread * thread_scratch());
                                         });
  const std::int64_t taps = p_.columns.taps;
  for (std::int64_t o = 0; o < p_.outputs; ++o) {
    const float* const sums = total + o * width_;
    for (std::int64_t i = 0; i < p_.inputs; ++i) {
      for (std::int64_t t = 0; t < p_.taps(); ++t)
        dw[(o * p_.inputs + i) * p_.taps() + t] = sums[t % taps * height_ + t / taps * p_.inputs + i];
    }
    if (db) db[o] = sums[height_ - 1];
  }
}

void ThinWeightPass::run_chunk(std::int64_t chunk, float* sums, float* scratch) const {
  float* const padded = scratch;
  float* const columns = padded + padded_size();
  float* const x_copy = columns + columns_size();
  float* const dy_copy = x_copy + x_copy_size();
  const std::int64_t n = chunk / chunks_.count * chunks_.images, images = std::min(chunks_.images, p_.images - n);
  const std::int64_t begin = chunk % chunks_.count * chunks_.rows, end = std::min(begin + chunks_.rows, p_.rows.output);
  const std::int64_t pixels = (end - begin) * p_.columns.output;
  StridedImages dy = dy_.images_from(n).pixels_from(begin * p_.columns.output, pixels);
  if (!dy.readable()) {
    const StridedImages copy = StridedImages::channels_last(dy_copy, dy.channels, pixels);
    copy_images(dy, copy, images);
    dy = copy;
  }
  for (std::int64_t i = 0; i < images; ++i) {
    pad(x_.images_from(n + i), begin, end, padded, x_copy);
    stack(padded, end - begin, columns + i * (end - begin) * padded_columns_ * height_);
  }
  PixelProduct product{.x = dy.f32(),
                       .row_count = p_.outputs,
                       .y_block = kBlock,
                       .pixels = pixels_.data(),
                       .pixel_count = images * pixels,
                       .d_row = width_,
                       .d_block = kBlock};
  for (std::int64_t column = 0; column < width_; column += kTileColumns) {
    product.blocks = blocks_of(std::min(kTileColumns, width_ - column));
    product.y = columns + column;
    product.d = sums + column;
    f32_kernels().pixel_product(product);
  }
}

void ThinWeightPass::pad(const StridedImages& images, std::int64_t begin, std::int64_t end, float* padded,
                         float* copy) const {
  const std::int64_t c = p_.inputs, width = p_.columns.input, left = std::min(p_.columns.padding, padded_columns_);
  const std::int64_t columns = std::min(width, padded_columns_ - left);
  const std::int64_t first = begin * p_.rows.stride - p_.rows.padding,
                     rows = (end - begin - 1) * p_.rows.stride + p_.rows.span() + 1;
  // Rows [inside, past) lie in the image.
  const std::int64_t inside = std::clamp<std::int64_t>(first, 0, p_.rows.input),
                     past = std::clamp<std::int64_t>(first + rows, inside, p_.rows.input);
  const StridedImages image = as_f32(images.pixels_from(inside * width, (past - inside) * width), copy);
  std::fill_n(padded, rows * padded_columns_ * c, 0.f);
  for (std::int64_t row = inside; row < past && columns > 0; ++row)
    copy_channels(image, (row - inside) * width, columns, padded + (row - first) * c * padded_columns_ + left,
                  padded_columns_);
}

void ThinWeightPass::stack(const float* padded, std::int64_t rows, float* columns) const {
  // With dilation 1, the channels of all rows of taps have one stride, so one transposition copies them.
  const std::int64_t joined = p_.rows.dilation == 1 ? p_.rows.taps : 1, row_size = padded_columns_ * p_.inputs;
  vectorized([&] {
    for (std::int64_t row = 0; row < rows; ++row, columns += padded_columns_ * height_) {
      const float* const in = padded + row * p_.rows.stride * row_size;
      for (std::int64_t tap = 0; tap < p_.rows.taps; tap += joined)
        transpose(in + tap * p_.rows.dilation * row_size, padded_columns_, joined * p_.inputs, padded_columns_,
                  columns + tap * p_.inputs, height_);
      for (std::int64_t column = 0; column < padded_columns_; ++column) columns[(column + 1) * height_ - 1] = 1;
    }
    std::fill_n(columns, kBlock, 0.f);
  });
}

}  // namespace lockstep::cpu
