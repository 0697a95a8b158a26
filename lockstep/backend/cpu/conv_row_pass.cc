#include "lockstep/backend/cpu/conv_row_pass.h"

#include <algorithm>

#include "lockstep/backend/cpu/conv_group.h"
#include "lockstep/backend/cpu/f32_pack.h"

namespace lockstep::cpu {

RowPass::RowPass(std::vector<AxisClass> rows, std::vector<AxisClass> columns, const ConvAxis& kernel_columns,
                 std::int64_t from_width, std::int64_t to_width, std::int64_t taps, std::int64_t images,
                 const StridedImages& from, const StridedImages& to, bool depthwise)
    : from_(from), to_(to), images_(images), taps_(taps), depthwise_(depthwise),
      chunk_(depthwise ? 1 : sum_blocks(taps, from.blocks())),
      group_(std::clamp<std::int64_t>(
          kPanel / ((in_place() ? from.pixels * kBlock : readable(nullptr).image) + to.pixels * kTileColumns), 1,
          images)) {
  const StridedImages in = readable(nullptr),
                      out = to.vectors() ? to : StridedImages::blocked(nullptr, kTileColumns, to.pixels);
  for (const AxisClass& row : rows) {
    for (const AxisClass& column : columns)
      classes_.push_back(make_class(row, column, kernel_columns.taps, from_width, to_width, in, out));
  }
}

StridedImages RowPass::readable(float* from_panel) const {
  if (in_place()) return from_;
  return depthwise_ ? StridedImages::blocked(from_panel, from_.channels, from_.pixels)
                    : StridedImages::channels_last(from_panel, from_.channels, from_.pixels);
}

void RowPass::run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const {
  // Each thread gets whole groups of images. If there are fewer groups than threads, threads also divide the tiles of
  // output channels.
  const std::int64_t groups = ceil_div(images_, group_), tiles = ceil_div(to_.channels, kTileColumns);
  const std::int64_t parts = groups >= context.threads ? 1 : std::min<std::int64_t>(tiles, context.threads);
  for_each_thread(context, groups * parts, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
    float* const from_panel = scratch + thread * this->scratch();
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t first = unit / parts * group_, count = std::min(group_, images_ - first), part = unit % parts;
      StridedImages in = from_.images_from(first);
      if (!in_place()) {
        copy_images(in, readable(from_panel), count);
        in = readable(from_panel);
      }
      for (std::int64_t tile = tiles * part / parts; tile < tiles * (part + 1) / parts; ++tile) {
        run_tile(in, first, count, tile * kTileColumns, packed, bias, from_panel + from_scratch());
      }
    }
  });
}

RowPass::PixelClass RowPass::make_class(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width,
                                        std::int64_t from_width, std::int64_t to_width, const StridedImages& from,
                                        const StridedImages& to) const {
  PixelClass c;
  c.whole = make_steps(row, column, kernel_width, from_width, from, chunk_, depthwise_ ? 1 : kBlock);
  c.part = make_steps(row, column, kernel_width, from_width, from, 1, from.channels % kBlock);
  const std::size_t pixels = static_cast<std::size_t>(group_) * row.positions.size() * column.positions.size();
  c.from.reserve(pixels);
  c.to.reserve(pixels);
  for (std::int64_t n = 0; n < group_; ++n) {
    for (const auto& [to_row, from_row] : row.positions) {
      for (const auto& [to_column, from_column] : column.positions) {
        c.from.push_back(n * from.image + (from_row * from_width + from_column) * from.pixel);
        c.to.push_back(n * to.image + (to_row * to_width + to_column) * to.pixel);
      }
    }
  }
  return c;
}

RowPass::Steps RowPass::make_steps(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width,
                                   std::int64_t from_width, const StridedImages& from, std::int64_t blocks,
                                   std::int64_t channels) const {
  const auto apart = [](const AxisClass::Tap& a, const AxisClass::Tap& b) {
    return b.tap != a.tap + 1 || b.offset != a.offset + 1;
  };
  const bool joined = from.pixel == channels && std::ranges::adjacent_find(column.taps, apart) == column.taps.end();
  const std::size_t taps = joined ? column.taps.size() : 1;
  Steps s{.terms = channels * static_cast<std::int64_t>(taps)};
  if (taps == 0) return s;
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (const auto& [tap_row, row_offset] : row.taps) {
      for (std::size_t i = 0; i < column.taps.size(); i += taps) {
        s.steps.push_back(
            {b * from.block + (row_offset * from_width + column.taps[i].offset) * from.pixel,
             (b * taps_ * kBlock + (tap_row * kernel_width + column.taps[i].tap) * channels) * kTileColumns});
      }
    }
  }
  return s;
}

void RowPass::run_tile(const StridedImages& in, std::int64_t first, std::int64_t count, std::int64_t column,
                       const float* packed, const float* bias, float* to_panel) const {
  const std::int64_t columns = std::min(kTileColumns, to_.channels - column);
  const StridedImages target = to_.images_from(first).slice(column, columns);
  const StridedImages out = to_.vectors() ? target : StridedImages::blocked(to_panel, kTileColumns, to_.pixels);
  const std::int64_t blocks = depthwise_ ? 1 : in.blocks(), full = depthwise_ ? 1 : in.channels / kBlock;
  RowProduct p{.y = out.f32(), .y_block = out.block, .blocks = blocks_of(columns), .x_block = in.block};
  for (std::int64_t b = 0; b < blocks;) {
    // A partly used block is its own chunk.
    const std::int64_t height = b < full ? std::min(chunk_, full - b) : 1;
    p.x = in.f32() + (depthwise_ ? column / kBlock : b) * in.block;
    p.w = packed + (column / kTileColumns * blocks + b) * taps_ * kTap;
    p.accumulate = b > 0;
    p.bias = bias && b + height == blocks ? bias + column : nullptr;
    for (const PixelClass& c : classes_) {
      const Steps& s = b < full ? c.whole : c.part;
      p.step_count = static_cast<std::int64_t>(s.steps.size()) / (b < full ? chunk_ : 1) * height;
      if (p.step_count == 0 && p.accumulate && !p.bias) continue;
      p.steps = s.steps.data();
      p.terms = s.terms;
      p.x_rows = c.from.data();
      p.y_rows = c.to.data();
      p.rows = static_cast<std::int64_t>(c.to.size()) / group_ * count;
      depthwise_ ? f32_kernels().column_product(p) : f32_kernels().row_product(p);
    }
    b += height;
  }
  if (!to_.vectors())
    copy_images(StridedImages::blocked(to_panel, kTileColumns, to_.pixels).slice(0, columns), target, count);
}

}  // namespace lockstep::cpu
