#include "lockstep/backend/cpu/conv_weight_pass.h"

#include <algorithm>

namespace lockstep::cpu {

WeightPass::WeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy, bool only_bias)
    : p_(p), x_(x), dy_(dy), blocks_(p.inputs % kBlock == 0), only_bias_(only_bias), output_pixels_(dy.pixels),
      chunks_(p) {
  padded_rows_ = p.rows.extent(p.rows.output);
  padded_columns_ = p.columns.extent(p.columns.output);
  std::int64_t elements = x.pixels * (blocks_ && x.readable() ? kBlock : x.channels) +
                          (blocks_ ? 0 : padded_pixels() * x.channels) +
                          output_pixels_ * (dy.vectors() ? kTileColumns : round_up(dy.channels));
  group_ = std::max<std::int64_t>(kPanel / elements / chunks_.images, 1) * chunks_.images;
  group_ = std::min(group_, p.images);

  const StridedImages in = input_panel(nullptr),
                      out = dy.vectors() ? dy : StridedImages::blocked(nullptr, dy.channels, dy.pixels);
  for (std::int64_t chunk = 0; chunk < chunks_.count; ++chunk) {
    for (std::int64_t tap = 0; !only_bias && tap < (blocks_ ? p.taps() : 1); ++tap)
      pixels_.push_back(make_pixels(chunk, tap, in, out));
    bias_pixels_.push_back(make_bias_pixels(chunk, out));
  }
}

void WeightPass::run(const KernelContext& context, float* packed, float* dw, float* scratch) const {
  const std::int64_t tiles = ceil_div(p_.outputs, kTileColumns), depth = blocks_ ? p_.inputs / kBlock : 1;
  // The larger of x and dy is read once, a block at a time, and the smaller one is read again for each of these blocks.
  const bool by_block = x_.pixels * p_.inputs > dy_.pixels * p_.outputs;
  const auto tile_of = [&](std::int64_t unit) { return by_block ? unit % tiles : unit / depth; };
  const auto block_of = [&](std::int64_t unit) { return by_block ? unit / tiles : unit % depth; };
  for_each_thread(context, tiles * depth, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
    float* const x_panel = scratch + thread * this->scratch();
    for (std::int64_t first = 0; first < p_.images; first += group_) {
      const std::int64_t count = std::min(group_, p_.images - first);
      const StridedImages x = input(first, count, x_panel),
                          dy = gradient(first, count, x_panel + x_scratch() + padded_scratch());
      for (std::int64_t unit = begin; unit < end; ++unit)
        run_unit(x, dy, first, count, tile_of(unit), block_of(unit), packed);
    }
    for (std::int64_t unit = begin; unit < end; ++unit) unpack(packed, tile_of(unit), block_of(unit), dw);
  });
}

void WeightPass::run_bias(const KernelContext& context, float* db, float* scratch) const {
  const std::int64_t tiles = ceil_div(p_.outputs, kTileColumns);
  for_each_thread(context, tiles, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
    float* const panel = scratch + thread * this->scratch() + x_scratch() + padded_scratch();
    std::vector<float> sums(static_cast<std::size_t>(tiles * kTileColumns));
    const float one = 1;
    for (std::int64_t first = 0; first < p_.images; first += group_) {
      const std::int64_t count = std::min(group_, p_.images - first);
      const StridedImages dy = gradient(first, count, panel);
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t columns = std::min(kTileColumns, p_.outputs - tile * kTileColumns);
        PixelProduct p{.x = &one,
                       .row_count = 1,
                       .y_block = dy.block,
                       .blocks = blocks_of(columns),
                       .d = sums.data() + tile * kTileColumns,
                       .d_block = kBlock};
        for_each_chunk(count, [&](std::int64_t n, std::int64_t chunk, std::int64_t images) {
          p.y = dy.f32() + n * dy.image + tile * 2 * dy.block;
          p.accumulate = first + n + chunk > 0;
          add(p, bias_pixels_[static_cast<std::size_t>(chunk)], images);
        });
      }
    }
    const std::int64_t from = begin * kTileColumns, to = std::min(end * kTileColumns, p_.outputs);
    if (from < to) std::copy(sums.begin() + from, sums.begin() + to, db + from);
  });
}

StridedImages WeightPass::input_panel(float* data) const {
  return blocks_ ? x_.readable() ? x_ : StridedImages::channels_last(data, x_.channels, x_.pixels)
                 : StridedImages::channels_last(data, x_.channels, padded_pixels());
}

StridedImages WeightPass::input(std::int64_t first, std::int64_t count, float* panel) const {
  StridedImages x = x_.images_from(first);
  if (copies_x()) {
    const StridedImages copy = StridedImages::channels_last(panel, x_.channels, x_.pixels);
    copy_images(x, copy, count);
    x = copy;
  }
  if (blocks_) return x;
  float* const padded = panel + x_scratch();
  std::fill_n(padded, count * padded_pixels() * x_.channels, 0.f);
  const std::int64_t c = x_.channels, left = p_.columns.padding,
                     columns = std::min(p_.columns.input, padded_columns_ - left);
  for (std::int64_t n = 0; n < count && columns > 0; ++n) {
    for (std::int64_t r = 0; r < std::min(p_.rows.input, padded_rows_ - p_.rows.padding); ++r) {
      std::copy_n(x.f32() + n * x.image + r * p_.columns.input * c, columns * c,
                  padded + (n * padded_pixels() + (r + p_.rows.padding) * padded_columns_ + left) * c);
    }
  }
  return input_panel(padded);
}

StridedImages WeightPass::gradient(std::int64_t first, std::int64_t count, float* panel) const {
  const StridedImages dy = dy_.images_from(first);
  if (dy_.vectors()) return dy;
  const StridedImages copy = StridedImages::blocked(panel, dy_.channels, dy_.pixels);
  copy_images(dy, copy, count);
  return copy;
}

std::vector<PixelPair> WeightPass::make_pixels(std::int64_t chunk, std::int64_t tap, const StridedImages& x,
                                               const StridedImages& dy) const {
  const ConvAxis &rows = p_.rows, &columns = p_.columns;
  const std::int64_t row_tap = tap / columns.taps * rows.dilation - rows.padding;
  const std::int64_t column_tap = tap % columns.taps * columns.dilation - columns.padding;
  std::vector<PixelPair> pixels;
  for_each_pixel(chunk, [&](std::int64_t n, std::int64_t r, std::int64_t c) {
    const std::int64_t to = n * dy.image + (r * columns.output + c) * kBlock;
    const std::int64_t row = r * rows.stride + row_tap, column = c * columns.stride + column_tap;
    if (!blocks_) {
      pixels.push_back({n * x.image + (r * rows.stride * padded_columns_ + c * columns.stride) * x.pixel, to});
    } else if (row >= 0 && row < rows.input && column >= 0 && column < columns.input) {
      pixels.push_back({n * x.image + (row * columns.input + column) * x.pixel, to});
    }
  });
  return pixels;
}

std::vector<PixelPair> WeightPass::make_bias_pixels(std::int64_t chunk, const StridedImages& dy) const {
  std::vector<PixelPair> pixels;
  for_each_pixel(chunk, [&](std::int64_t n, std::int64_t r, std::int64_t c) {
    pixels.push_back({0, n * dy.image + (r * p_.columns.output + c) * kBlock});
  });
  return pixels;
}

void WeightPass::add(PixelProduct& p, const std::vector<PixelPair>& pixels, std::int64_t images) const {
  p.pixels = pixels.data();
  p.pixel_count = static_cast<std::int64_t>(pixels.size()) / chunks_.images * images;
  if (p.pixel_count > 0 || !p.accumulate) f32_kernels().pixel_product(p);
}

void WeightPass::run_unit(const StridedImages& x, const StridedImages& dy, std::int64_t first, std::int64_t count,
                          std::int64_t tile, std::int64_t block, float* packed) const {
  const std::int64_t columns = std::min(kTileColumns, p_.outputs - tile * kTileColumns);
  // Number of taps per call: in a padded copy, a whole row of taps, unless dilation separates them.
  const std::int64_t joined = !blocks_ && p_.columns.dilation == 1 ? p_.columns.taps : 1, taps = p_.taps();
  PixelProduct p{.row_count = joined * (blocks_ ? kBlock : p_.inputs),
                 .y_block = dy.block,
                 .blocks = blocks_of(columns),
                 .d_block = kBlock * p_.inputs * p_.taps()};
  for_each_chunk(count, [&](std::int64_t n, std::int64_t chunk, std::int64_t images) {
    const float* const image = x.f32() + n * x.image;
    p.y = dy.f32() + n * dy.image + tile * 2 * dy.block;
    p.accumulate = first + n + chunk > 0;
    for (std::int64_t tap = 0; tap < taps; tap += joined) {
      p.x = image + (blocks_ ? block * x.block : tap_offset(tap));
      p.d = packed + tile * 2 * p.d_block + (block * taps + tap) / joined * p.row_count * kBlock;
      add(p, pixels_[static_cast<std::size_t>(blocks_ ? chunk * taps + tap : chunk)], images);
    }
  });
}

void WeightPass::unpack(const float* packed, std::int64_t tile, std::int64_t block, float* dw) const {
  const std::int64_t inputs = p_.inputs, taps = p_.taps();
  const std::int64_t begin = tile * kTileColumns, end = std::min(begin + kTileColumns, p_.outputs);
  const std::int64_t height = blocks_ ? kBlock : inputs;
  for (std::int64_t o = begin; o < end; ++o) {
    const float* const in = packed + (o / kBlock * inputs * taps + block * taps * height) * kBlock + o % kBlock;
    float* const out = dw + (o * inputs + block * height) * taps;
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t t = 0; t < taps; ++t) out[i * taps + t] = in[(t * height + i) * kBlock];
    }
  }
}

}  // namespace lockstep::cpu
