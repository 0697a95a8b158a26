#include "lockstep/backend/cpu/winograd.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/backend/cpu/f32_scratch.h"

namespace lockstep::cpu {
namespace {

constexpr std::int64_t kTaps = 9;
// Maximum number of f32 of the tiles that a WinogradPass transforms together: about half of a second-level cache. It
// does not affect the bits.
constexpr std::int64_t kTransformed = 128 << 10;
// Maximum number of tiles per partial sum of a weight gradient. It affects the bits.
constexpr std::int64_t kTiles = 64;
// Pads each of the 36 transformed matrices by a cache line, because they might all map to one cache set.
constexpr std::int64_t kApart = kBlock;
// Larger transformed weights leave the caches before they are read. It does not affect the bits.
constexpr std::int64_t kCached = 1 << 20;

// Returns all tiles of `count` images of `rows` by `columns` pixels.
WinogradPatches patches(const WinogradTiles& tiles, const StridedImages& images, std::int64_t count, std::int64_t rows,
                        std::int64_t columns) {
  return {.images = images.f32(),
          .image = images.image,
          .block = images.block,
          .row = columns * images.pixel,
          .pixel = images.pixel,
          .rows = rows,
          .columns = columns,
          .tile_rows = tiles.tile_rows(),
          .tile_columns = tiles.tile_columns(),
          .count = count * tiles.count(),
          .blocks = images.blocks()};
}

// Returns the images if kernels can read and write them in place, otherwise room at `data` for a copy.
StridedImages in_place(const StridedImages& images, float* data) {
  return images.readable() ? images : StridedImages::blocked(data, images.channels, images.pixels);
}

// Number of f32 in a copy of `count` images; 0 if they need no copy.
std::int64_t copy_size(const StridedImages& images, std::int64_t count) {
  return images.readable() ? 0 : count * images.pixels * images.channels;
}

// Returns the number of pairs of an output and a tap that read inside the image.
std::int64_t products(const ConvAxis& a) {
  std::int64_t count = 0;
  for (std::int64_t tap = 0; tap < a.taps; ++tap) {
    const std::int64_t first = std::max<std::int64_t>(0, a.padding - tap),
                       end = std::min(a.output, a.input + a.padding - tap);
    count += std::max<std::int64_t>(0, end - first);
  }
  return count;
}

// Returns the number of tiles at which transforming their inputs and outputs costs as much as transforming the weights.
std::int64_t balance(std::int64_t inputs, std::int64_t outputs) { return inputs * outputs / (inputs + outputs); }

}  // namespace

// The costs are in products of one pair of channels, as measured on a Cascade Lake Xeon with AVX-512. With AVX2,
// products cost more, and transforms cost more by about the same factor.
bool winograd_pays(const ConvAxis& rows, const ConvAxis& columns, std::int64_t images, std::int64_t inputs,
                   std::int64_t outputs) {
  for (const ConvAxis& axis : {rows, columns}) {
    if (axis.taps != 3 || axis.stride != 1 || axis.dilation != 1 || axis.padding > 2) return false;
  }
  if (inputs % kBlock != 0 || outputs % kBlock != 0) return false;
  const std::int64_t tiles = images * WinogradTiles{rows, columns}.count(), pairs = inputs * outputs;
  // Transforming the weights takes as long as the products of this many tiles; packing them for direct sums takes as
  // long as the products of this many pixels.
  constexpr std::int64_t kWeights = 32;
  const std::int64_t direct = (images * products(rows) * products(columns) + kTaps * kWeights) * pairs;
  // Products over short sums run at 4/5 of the speed. A transform of a tile of one channel takes as long as 25 products
  // for each of its frequencies.
  const std::int64_t winograd =
      kWinogradFrequencies * ((tiles + kWeights) * pairs * 5 / 4 + tiles * 25 * (inputs + outputs));
  return winograd < direct;
}

ConvAxis turned(const ConvAxis& axis) {
  ConvAxis turned = axis;
  turned.input = axis.output;
  turned.output = axis.input;
  turned.padding = 2 - axis.padding;
  return turned;
}

WinogradPatches WinogradTiles::inputs(const StridedImages& images, std::int64_t count) const {
  WinogradPatches p = patches(*this, images, count, rows.input, columns.input);
  p.row_padding = rows.padding;
  p.column_padding = columns.padding;
  return p;
}

WinogradPatches WinogradTiles::outputs(const StridedImages& images, std::int64_t count) const {
  return patches(*this, images, count, rows.output, columns.output);
}

WinogradPass::WinogradPass(const WinogradTiles& tiles, std::int64_t images, const StridedImages& from,
                           const StridedImages& to)
    : tiles_(tiles), images_(images), from_(from), to_(to),
      frequency_(ceil_div(to.channels, kTileColumns) * from.channels * kTileColumns + kApart),
      chunk_(std::min(kTerms / kBlock, from.blocks())) {
  // With fewer tiles, the time to read the transformed weights would exceed that of the products.
  const std::int64_t least = balance(from.channels, to.channels) / 4;
  const std::int64_t panel =
      std::max(kTransformed / (kWinogradFrequencies * (from.channels + to.channels)), std::max<std::int64_t>(least, 1));
  group_ = std::clamp<std::int64_t>(panel / tiles.count(), 1, images);
  panel_ = ceil_div(group_ * tiles.count(), ceil_div(group_ * tiles.count(), panel));
  for (std::int64_t t = 0; t < panel_; ++t) offsets_.push_back(t * kBlock);
  for (std::int64_t b = 0; b < chunk_; ++b) steps_.push_back({b * panel_ * kBlock, b * kTap});
}

void WinogradPass::transform(const KernelContext& context, const Weights& weights, bool turned, float* transformed,
                             const F32Kernels& kernels) const {
  const std::int64_t blocks = weights.term_blocks();
  const bool past_caches = weights_size() > kCached && reinterpret_cast<std::uintptr_t>(transformed) % 64 == 0;
  parallel_for(context, weights.tiles() * blocks, 1, [&](std::int64_t unit, std::int64_t) {
    alignas(64) std::array<float, kTaps * kTap> taps;
    pack_terms(weights, unit / blocks, unit % blocks, taps.data());
    kernels.winograd_weights({.taps = taps.data(),
                              .tap = kTap,
                              .transformed = transformed + unit * kTap,
                              .frequency = frequency_,
                              .count = kTap,
                              .turned = turned,
                              .past_caches = past_caches});
  });
}

std::int64_t WinogradPass::scratch() const {
  return kWinogradFrequencies * ((from_.channels + to_.channels) * panel_ + 2 * kApart) + copy_size(from_, group_) +
         copy_size(to_, group_);
}

void WinogradPass::run(const KernelContext& context, const float* transformed, const float* bias, float* scratch,
                       const F32Kernels& kernels) const {
  const std::int64_t groups = ceil_div(images_, group_), column_tiles = ceil_div(to_.channels, kTileColumns);
  const std::int64_t parts = groups >= context.threads ? 1 : std::min<std::int64_t>(column_tiles, context.threads);
  const std::int64_t in_frequency = from_.channels * panel_ + kApart, out_frequency = to_.channels * panel_ + kApart;
  for_each_thread(context, groups * parts, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
    float* const in = scratch + thread * this->scratch();
    float* const out = in + kWinogradFrequencies * in_frequency;
    float* const from_copy = out + kWinogradFrequencies * out_frequency;
    float* const to_copy = from_copy + copy_size(from_, group_);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t first = unit / parts * group_, count = std::min(group_, images_ - first), part = unit % parts;
      const std::int64_t first_tile = column_tiles * part / parts, last_tile = column_tiles * (part + 1) / parts;
      const std::int64_t column = first_tile * kTileColumns,
                         columns = std::min(last_tile * kTileColumns, to_.channels) - column;
      StridedImages from = from_.images_from(first);
      if (!from.readable()) {
        const StridedImages copy = in_place(from, from_copy);
        copy_images(from, copy, count);
        from = copy;
      }
      const StridedImages target = to_.images_from(first).slice(column, columns), to = in_place(target, to_copy);
      WinogradPatches inputs = tiles_.inputs(from, count), outputs = tiles_.outputs(to, count);
      const std::int64_t tiles = inputs.count;
      inputs.transformed = in, inputs.frequency = in_frequency;
      outputs.transformed = out, outputs.frequency = out_frequency;
      inputs.transformed_block = outputs.transformed_block = panel_ * kBlock;
      outputs.bias = bias ? bias + column : nullptr;
      const std::int64_t panels = ceil_div(tiles, panel_);
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        inputs.first = outputs.first = tiles * panel / panels;
        inputs.count = outputs.count = tiles * (panel + 1) / panels - inputs.first;
        kernels.winograd_input(inputs);
        RowProduct p{.x_rows = offsets_.data(),
                     .y_rows = offsets_.data(),
                     .rows = inputs.count,
                     .y_block = panel_ * kBlock,
                     .steps = steps_.data(),
                     .terms = kBlock};
        for (std::int64_t f = 0; f < kWinogradFrequencies; ++f) {
          for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
            const std::int64_t block = (tile - first_tile) * 2;
            p.y = out + f * out_frequency + block * panel_ * kBlock;
            p.blocks = std::min<std::int64_t>(2, outputs.blocks - block);
            for (std::int64_t b = 0; b < from.blocks(); b += chunk_) {
              p.x = in + f * in_frequency + b * panel_ * kBlock;
              p.w = transformed + f * frequency_ + (tile * from.blocks() + b) * kTap;
              p.step_count = std::min(chunk_, from.blocks() - b);
              p.ahead = p.step_count * kTap;
              p.accumulate = b > 0;
              kernels.row_product(p);
            }
          }
        }
        kernels.winograd_output(outputs);
      }
      if (!target.readable()) copy_images(to, target, count);
    }
  });
}

// Chunks of tiles that make one partial sum each: parts of an image, or several images.
struct WinogradWeightPass::Chunks {
  std::int64_t tiles, images;  // tiles per image
  std::int64_t parts = std::max<std::int64_t>(ceil_div(tiles, kTiles), 1);
  std::int64_t group = std::max<std::int64_t>(kTiles / tiles, 1);

  std::int64_t count() const { return ceil_div(images, group) * parts; }
  std::int64_t begin(std::int64_t chunk) const {
    return std::min(chunk / parts * group * tiles + chunk % parts * tiles / parts, images * tiles);
  }
  std::int64_t largest() const { return parts > 1 ? ceil_div(tiles, parts) : group * tiles; }
};

WinogradWeightPass::WinogradWeightPass(const WinogradTiles& tiles, std::int64_t images, const StridedImages& x,
                                       const StridedImages& dy)
    : tiles_(tiles), images_(images), x_(x), dy_(dy), frequency_(x.channels * dy.channels + kApart) {
  const Chunks chunks{tiles_.count(), images_};
  chunks_ = std::clamp<std::int64_t>(balance(x.channels, dy.channels) / chunks.largest(), 1, chunks.count());
  panel_ = chunks_ * chunks.largest();
  at_once_ = chunks_ == chunks.count() && panel_ <= kTiles && kWinogradFrequencies * frequency_ > kCached;
  if (at_once_) frequency_ = 2 * kBlock * kBlock + kApart;
  copied_ = std::min(ceil_div(panel_, tiles_.count()) + 1, images_);
  for (std::int64_t t = 0; t < chunks.largest(); ++t) pixels_.push_back({t * kBlock, t * kBlock});
}

std::int64_t WinogradWeightPass::transformed_size(std::int64_t blocks) const {
  return kWinogradFrequencies * (blocks * panel_ * kBlock + (at_once_ ? blocks : 1) * kApart);
}

std::int64_t WinogradWeightPass::scratch(int threads) const {
  return kWinogradFrequencies * frequency_ * (at_once_ ? threads : 1) + transformed_size(x_.blocks()) +
         transformed_size(dy_.blocks()) + copy_size(x_, copied_) + copy_size(dy_, copied_);
}

void WinogradWeightPass::run(const KernelContext& context, float* dw, float* scratch, const F32Kernels& kernels) const {
  const Chunks chunks{tiles_.count(), images_};
  const std::int64_t depth = x_.blocks(), width = dy_.blocks(), tiles = panel_ * kBlock;
  // All frequencies of a block lie together if at_once_, else all blocks of a frequency, because kernels read them so.
  const std::int64_t x_frequency = (at_once_ ? 1 : depth) * tiles + kApart,
                     dy_frequency = (at_once_ ? 1 : width) * tiles + kApart,
                     tile_block = at_once_ ? transformed_size(1) : tiles;
  float* const products = scratch;
  float* const x_tiles = products + kWinogradFrequencies * frequency_ * (at_once_ ? context.threads : 1);
  float* const dy_tiles = x_tiles + transformed_size(depth);
  float* const x_copy = dy_tiles + transformed_size(width);
  float* const dy_copy = x_copy + copy_size(x_, copied_);
  std::int64_t first_copied = 0, end_copied = 0;
  for (std::int64_t chunk = 0; chunk < chunks.count(); chunk += chunks_) {
    const std::int64_t last = std::min(chunk + chunks_, chunks.count());
    const std::int64_t begin = chunks.begin(chunk), end = chunks.begin(last);
    // If an image has many tiles, its copy serves the next panel, too.
    if (ceil_div(end, chunks.tiles) > end_copied) {
      first_copied = begin / chunks.tiles;
      end_copied = std::min(first_copied + copied_, images_);
      for (const auto& [images, copy] : {std::pair(x_, x_copy), std::pair(dy_, dy_copy)}) {
        if (images.readable()) continue;
        const StridedImages to = in_place(images, copy);
        for_each_thread(context, end_copied - first_copied, [&](std::int64_t, std::int64_t from, std::int64_t until) {
          copy_images(images.images_from(first_copied + from), to.images_from(from), until - from);
        });
      }
    }
    const StridedImages x = in_place(x_.images_from(first_copied), x_copy),
                        dy = in_place(dy_.images_from(first_copied), dy_copy);
    // Transform the blocks of x, then those of dy.
    for_each_thread(context, depth + width, [&](std::int64_t, std::int64_t from, std::int64_t until) {
      for (std::int64_t b = from; b < until; ++b) {
        const bool of_x = b < depth;
        const std::int64_t block = of_x ? b : b - depth;
        WinogradPatches p = of_x ? tiles_.inputs(x, 0) : tiles_.outputs(dy, 0);
        p.images += block * p.block;
        p.first = begin - first_copied * chunks.tiles;
        p.count = end - begin;
        p.blocks = 1;
        p.transformed = (of_x ? x_tiles : dy_tiles) + block * tile_block;
        p.frequency = of_x ? x_frequency : dy_frequency;
        (of_x ? kernels.winograd_input : kernels.winograd_output_gradient)(p);
      }
    });
    // Computes one frequency of the products of a block of x and up to two blocks of dy.
    const auto multiply = [&](std::int64_t f, std::int64_t row, std::int64_t column, float* d, std::int64_t d_block) {
      PixelProduct p{.row_count = kBlock,
                     .y_block = tile_block,
                     .blocks = std::min<std::int64_t>(2, width - column),
                     .pixels = pixels_.data(),
                     .d = d,
                     .d_block = d_block};
      for (std::int64_t c = chunk; c < last; ++c) {
        const std::int64_t at = (chunks.begin(c) - begin) * kBlock;
        p.x = x_tiles + f * x_frequency + row * tile_block + at;
        p.y = dy_tiles + f * dy_frequency + column * tile_block + at;
        p.pixel_count = chunks.begin(c + 1) - chunks.begin(c);
        p.accumulate = c > 0;
        kernels.pixel_product(p);
      }
    };
    const std::int64_t column_tiles = ceil_div(width, 2);
    if (at_once_) {
      for_each_thread(context, column_tiles * depth, [&](std::int64_t thread, std::int64_t from, std::int64_t until) {
        float* const unit_products = products + thread * kWinogradFrequencies * frequency_;
        for (std::int64_t unit = from; unit < until; ++unit) {
          const std::int64_t row = unit % depth, column = unit / depth * 2;
          for (std::int64_t f = 0; f < kWinogradFrequencies; ++f)
            multiply(f, row, column, unit_products + f * frequency_, kBlock * kBlock);
          for (std::int64_t b = 0; b < std::min<std::int64_t>(2, width - column); ++b)
            finish(unit_products + b * kBlock * kBlock, row, column + b, dw, kernels);
        }
      });
      return;
    }
    for_each_thread(context, kWinogradFrequencies * column_tiles,
                    [&](std::int64_t, std::int64_t from, std::int64_t until) {
                      for (std::int64_t unit = from; unit < until; ++unit) {
                        const std::int64_t f = unit / column_tiles, column = unit % column_tiles * 2;
                        for (std::int64_t row = 0; row < depth; ++row) {
                          multiply(f, row, column, products + f * frequency_ + (column * depth + row) * kBlock * kBlock,
                                   depth * kBlock * kBlock);
                        }
                      }
                    });
  }
  for_each_thread(context, depth * width, [&](std::int64_t, std::int64_t from, std::int64_t until) {
    for (std::int64_t unit = from; unit < until; ++unit)
      finish(products + unit * kBlock * kBlock, unit % depth, unit / depth, dw, kernels);
  });
}

void WinogradWeightPass::finish(float* products, std::int64_t row, std::int64_t column, float* dw,
                                const F32Kernels& kernels) const {
  alignas(64) std::array<float, kTaps * kBlock * kBlock> taps;
  kernels.winograd_weight_gradient({.taps = taps.data(),
                                    .tap = kBlock * kBlock,
                                    .transformed = products,
                                    .frequency = frequency_,
                                    .count = kBlock * kBlock});
  float* const out = dw + (column * x_.channels + row) * kBlock * kTaps;
  for (std::int64_t o = 0; o < kBlock; ++o) {
    for (std::int64_t i = 0; i < kBlock; ++i) {
      for (std::int64_t t = 0; t < kTaps; ++t) {
        out[(o * x_.channels + i) * kTaps + t] = taps[static_cast<std::size_t>((t * kBlock + i) * kBlock + o)];
      }
    }
  }
}

}  // namespace lockstep::cpu
