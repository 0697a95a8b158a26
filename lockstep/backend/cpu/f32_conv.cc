#include "lockstep/backend/cpu/f32_conv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/backend/cpu/conv_taps.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"
#include "lockstep/backend/cpu/winograd.h"

namespace lockstep {
namespace cpu {
namespace {

// Pixels of a weight gradient that are added in one go, at most, unless a row of pixels has more. Part of what decides bits.
constexpr std::int64_t kPixels = 128;
// What the images that are computed together may take, in f32: about half of a second-level cache. Decides no bits.
constexpr std::int64_t kPanel = 96 << 10;

// A convolution of one group of channels.
struct Problem {
  ConvAxis rows, columns;
  std::int64_t images, inputs, outputs;  // images, channels of x and of y
  std::int64_t groups;

  Problem(const Conv2dOptions& o, const View& x, const View& w, const View& y)
      : rows{x.shape[2], y.shape[2], w.shape[2], o.stride[0], o.padding[0], o.dilation[0]},
        columns{x.shape[3], y.shape[3], w.shape[3], o.stride[1], o.padding[1], o.dilation[1]},
        images(x.shape[0]),
        inputs(x.shape[1] / o.groups),
        outputs(y.shape[1] / o.groups),
        groups(o.groups) {}
  std::int64_t taps() const { return rows.taps * columns.taps; }
  std::int64_t weights() const { return inputs * outputs * taps(); }
};

// The weights [O, I, taps] of a group. Forward, columns are outputs and the sum is over inputs; for the gradient of the data it
// is the other way round.
Weights weights_of(const Problem& p, const float* w, ConvPass pass, DType rounded) {
  const std::int64_t taps = p.taps();
  Weights weights{.data = w, .taps = taps, .rounded = rounded};
  if (pass == ConvPass::backward_data) {
    weights.terms = p.outputs, weights.columns = p.inputs, weights.term_stride = p.inputs * taps, weights.column_stride = taps;
  } else {
    weights.terms = p.inputs, weights.columns = p.outputs, weights.term_stride = taps, weights.column_stride = p.inputs * taps;
  }
  return weights;
}

// Images that a kernel can read in place, or else room for a copy of them.
StridedImages readable(const StridedImages& images) {
  return images.readable() ? images : StridedImages::channels_last(nullptr, images.channels, images.pixels);
}

// A pass that computes rows of pixels: the forward pass, or the gradient of the data.
class RowPass {
 public:
  RowPass(std::vector<AxisClass> rows, std::vector<AxisClass> columns, const ConvAxis& kernel_columns, std::int64_t from_width,
          std::int64_t to_width, std::int64_t taps, std::int64_t images, const StridedImages& from, const StridedImages& to)
      : from_(from),
        to_(to),
        images_(images),
        taps_(taps),
        chunk_(std::clamp<std::int64_t>(kTerms / (taps * kBlock), 1, from.blocks())),
        group_(std::clamp<std::int64_t>(kPanel / (from.pixels * (from.readable() ? kBlock : from.channels) + to.pixels * kTileColumns),
                                        1, images)) {
    const StridedImages in = readable(from), out = to.vectors() ? to : StridedImages::blocked(nullptr, kTileColumns, to.pixels);
    for (const AxisClass& row : rows) {
      for (const AxisClass& column : columns) classes_.push_back(make_class(row, column, kernel_columns.taps, from_width, to_width, in, out));
    }
  }

  // In f32, for each thread.
  std::int64_t scratch() const { return from_scratch() + (to_.vectors() ? 0 : group_ * to_.pixels * kTileColumns); }

  // `bias` is padded to blocks, or null.
  void run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const {
    // Whole groups of images for each thread; where there are fewer than threads, parts of the output's blocks, too.
    const std::int64_t groups = ceil_div(images_, group_), tiles = ceil_div(to_.channels, kTileColumns);
    const std::int64_t parts = groups >= context.threads ? 1 : std::min<std::int64_t>(tiles, context.threads);
    for_each_thread(context, groups * parts, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      float* const from_panel = scratch + thread * this->scratch();
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t first = unit / parts * group_, count = std::min(group_, images_ - first), part = unit % parts;
        StridedImages in = from_.images_from(first);
        if (!from_.readable()) {
          const StridedImages panel = StridedImages::channels_last(from_panel, from_.channels, from_.pixels);
          copy_images(in, panel, count);
          in = panel;
        }
        for (std::int64_t tile = tiles * part / parts; tile < tiles * (part + 1) / parts; ++tile) {
          run_tile(in, first, count, tile * kTileColumns, packed, bias, from_panel + from_scratch());
        }
      }
    });
  }

 private:
  struct Steps {
    std::vector<Step> steps;
    std::int64_t terms = 0;  // of each step
  };
  // Pixels of all images of a group that meet the same taps, by image.
  struct PixelClass {
    Steps whole, part;  // of a chunk of whole blocks, and of the channels that fill no block
    std::vector<std::int64_t> from, to;
  };

  PixelClass make_class(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width, std::int64_t from_width,
                        std::int64_t to_width, const StridedImages& from, const StridedImages& to) const {
    PixelClass c;
    c.whole = make_steps(row, column, kernel_width, from_width, from, chunk_, kBlock);
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

  // Steps over all taps of `blocks` blocks of `channels` channels. Taps that read pixels side by side are one step where the
  // channels are all that a pixel has there.
  Steps make_steps(const AxisClass& row, const AxisClass& column, std::int64_t kernel_width, std::int64_t from_width,
                   const StridedImages& from, std::int64_t blocks, std::int64_t channels) const {
    const auto apart = [](const AxisClass::Tap& a, const AxisClass::Tap& b) { return b.tap != a.tap + 1 || b.offset != a.offset + 1; };
    const bool joined = from.pixel == channels && std::ranges::adjacent_find(column.taps, apart) == column.taps.end();
    const std::size_t taps = joined ? column.taps.size() : 1;
    Steps s{.terms = channels * static_cast<std::int64_t>(taps)};
    if (taps == 0) return s;
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (const auto& [tap_row, row_offset] : row.taps) {
        for (std::size_t i = 0; i < column.taps.size(); i += taps) {
          s.steps.push_back({b * from.block + (row_offset * from_width + column.taps[i].offset) * from.pixel,
                             (b * taps_ * kBlock + (tap_row * kernel_width + column.taps[i].tap) * channels) * kTileColumns});
        }
      }
    }
    return s;
  }

  // Columns [column, column + kTileColumns) of `count` images.
  void run_tile(const StridedImages& in, std::int64_t first, std::int64_t count, std::int64_t column, const float* packed,
                const float* bias, float* to_panel) const {
    const std::int64_t columns = std::min(kTileColumns, to_.channels - column);
    const StridedImages target = to_.images_from(first).slice(column, columns);
    const StridedImages out = to_.vectors() ? target : StridedImages::blocked(to_panel, kTileColumns, to_.pixels);
    const std::int64_t blocks = in.blocks(), full = in.channels / kBlock;
    RowProduct p{.y = out.f32(), .y_block = out.block, .blocks = blocks_of(columns)};
    for (std::int64_t b = 0; b < blocks;) {
      // A block that is partly used is a chunk of its own.
      const std::int64_t height = b < full ? std::min(chunk_, full - b) : 1;
      p.x = in.f32() + b * in.block;
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
        f32_kernels().row_product(p);
      }
      b += height;
    }
    if (!to_.vectors()) copy_images(StridedImages::blocked(to_panel, kTileColumns, to_.pixels).slice(0, columns), target, count);
  }

  std::int64_t from_scratch() const { return from_.readable() ? 0 : round_up(group_ * from_.pixels * from_.channels); }

  StridedImages from_, to_;
  std::int64_t images_, taps_;
  std::int64_t chunk_;  // blocks of channels that are summed in one go
  std::int64_t group_;  // images that are computed together
  std::vector<PixelClass> classes_;
};

// The gradient of the weights. Where inputs fill their blocks, the 16 channels of a block are the rows of a register tile, and
// the pixels of a tap leave out the padding. Otherwise all weights of an output are rows, of a copy of x with its padding.
class WeightPass {
 public:
  WeightPass(const Problem& p, const StridedImages& x, const StridedImages& dy)
      : p_(p), x_(x), dy_(dy), blocks_(p.inputs % kBlock == 0), output_pixels_(dy.pixels) {
    padded_rows_ = (p.rows.output - 1) * p.rows.stride + p.rows.dilation * (p.rows.taps - 1) + 1;
    padded_columns_ = (p.columns.output - 1) * p.columns.stride + p.columns.dilation * (p.columns.taps - 1) + 1;
    if (output_pixels_ >= kPixels) {
      chunk_rows_ = std::max<std::int64_t>(1, kPixels / p.columns.output);
      chunks_ = ceil_div(p.rows.output, chunk_rows_);
    } else {
      chunk_rows_ = p.rows.output;
      chunk_images_ = kPixels / output_pixels_;
    }
    std::int64_t elements = x.pixels * (blocks_ && x.readable() ? kBlock : x.channels) + (blocks_ ? 0 : padded_pixels() * x.channels) +
                            output_pixels_ * (dy.vectors() ? kTileColumns : round_up(dy.channels));
    group_ = std::max<std::int64_t>(kPanel / elements / chunk_images_, 1) * chunk_images_;
    group_ = std::min(group_, p.images);

    const StridedImages in = input_panel(nullptr), out = dy.vectors() ? dy : StridedImages::blocked(nullptr, dy.channels, dy.pixels);
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      for (std::int64_t tap = 0; tap < (blocks_ ? p.taps() : 1); ++tap) pixels_.push_back(make_pixels(chunk, tap, in, out));
      bias_pixels_.push_back(make_bias_pixels(chunk, out));
    }
    if (!blocks_) {
      for (std::int64_t r = 0; r < p.rows.taps; ++r) {
        for (std::int64_t c = 0; c < p.columns.taps; ++c) {
          for (std::int64_t i = 0; i < p.inputs; ++i) {
            rows_.push_back((r * p.rows.dilation * padded_columns_ + c * p.columns.dilation) * p.inputs + i);
          }
        }
      }
    }
  }

  // In f32, for each thread.
  std::int64_t scratch() const { return x_scratch() + padded_scratch() + dy_scratch(); }
  // In f32: the gradient as the kernels compute it, by blocks of outputs.
  std::int64_t packed_size() const { return blocks_of(p_.outputs) * kBlock * p_.inputs * p_.taps(); }

  void run(const KernelContext& context, float* packed, float* dw, float* scratch) const {
    const std::int64_t tiles = ceil_div(p_.outputs, kTileColumns), depth = blocks_ ? p_.inputs / kBlock : 1;
    for_each_thread(context, tiles * depth, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      float* const x_panel = scratch + thread * this->scratch();
      for (std::int64_t first = 0; first < p_.images; first += group_) {
        const std::int64_t count = std::min(group_, p_.images - first);
        const StridedImages x = input(first, count, x_panel), dy = gradient(first, count, x_panel + x_scratch() + padded_scratch());
        for (std::int64_t unit = begin; unit < end; ++unit) run_unit(x, dy, first, count, unit / depth, unit % depth, packed);
      }
      for (std::int64_t unit = begin; unit < end; ++unit) unpack(packed, unit / depth, unit % depth, dw);
    });
  }

  // The gradient of the bias: sums of dy, in the same chunks.
  void run_bias(const KernelContext& context, float* db, float* scratch) const {
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

 private:
  std::int64_t padded_pixels() const { return padded_rows_ * padded_columns_; }
  bool copies_x() const { return blocks_ ? !x_.readable() : !(x_.readable() && x_.pixel == x_.channels); }
  std::int64_t x_scratch() const { return copies_x() ? round_up(group_ * x_.pixels * x_.channels) : 0; }
  std::int64_t padded_scratch() const { return blocks_ ? 0 : round_up(group_ * padded_pixels() * x_.channels); }
  std::int64_t dy_scratch() const { return dy_.vectors() ? 0 : group_ * dy_.pixels * round_up(dy_.channels); }

  // How x lies where the kernels read it.
  StridedImages input_panel(float* data) const {
    return blocks_ ? x_.readable() ? x_ : StridedImages::channels_last(data, x_.channels, x_.pixels)
                   : StridedImages::channels_last(data, x_.channels, padded_pixels());
  }

  StridedImages input(std::int64_t first, std::int64_t count, float* panel) const {
    StridedImages x = x_.images_from(first);
    if (copies_x()) {
      const StridedImages copy = StridedImages::channels_last(panel, x_.channels, x_.pixels);
      copy_images(x, copy, count);
      x = copy;
    }
    if (blocks_) return x;
    float* const padded = panel + x_scratch();
    std::fill_n(padded, count * padded_pixels() * x_.channels, 0.f);
    const std::int64_t c = x_.channels, left = p_.columns.padding, columns = std::min(p_.columns.input, padded_columns_ - left);
    for (std::int64_t n = 0; n < count && columns > 0; ++n) {
      for (std::int64_t r = 0; r < std::min(p_.rows.input, padded_rows_ - p_.rows.padding); ++r) {
        std::copy_n(x.f32() + n * x.image + r * p_.columns.input * c, columns * c,
                    padded + (n * padded_pixels() + (r + p_.rows.padding) * padded_columns_ + left) * c);
      }
    }
    return input_panel(padded);
  }

  StridedImages gradient(std::int64_t first, std::int64_t count, float* panel) const {
    const StridedImages dy = dy_.images_from(first);
    if (dy_.vectors()) return dy;
    const StridedImages copy = StridedImages::blocked(panel, dy_.channels, dy_.pixels);
    copy_images(dy, copy, count);
    return copy;
  }

  // The pixels that meet a tap, of a chunk of rows of each of the images that are summed in one go.
  std::vector<PixelPair> make_pixels(std::int64_t chunk, std::int64_t tap, const StridedImages& x, const StridedImages& dy) const {
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
  // For sums of dy alone: x stays at one element.
  std::vector<PixelPair> make_bias_pixels(std::int64_t chunk, const StridedImages& dy) const {
    std::vector<PixelPair> pixels;
    for_each_pixel(chunk, [&](std::int64_t n, std::int64_t r, std::int64_t c) {
      pixels.push_back({0, n * dy.image + (r * p_.columns.output + c) * kBlock});
    });
    return pixels;
  }
  // Calls f(image, row, column) for each output of a chunk.
  template <typename F>
  void for_each_pixel(std::int64_t chunk, const F& f) const {
    for (std::int64_t n = 0; n < chunk_images_; ++n) {
      for (std::int64_t r = chunk * chunk_rows_; r < std::min((chunk + 1) * chunk_rows_, p_.rows.output); ++r) {
        for (std::int64_t c = 0; c < p_.columns.output; ++c) f(n, r, c);
      }
    }
  }

  // Calls f(image, chunk, how many of its images) for the chunks of `count` images. One chunk at a time stays in the first-level cache.
  template <typename F>
  void for_each_chunk(std::int64_t count, const F& f) const {
    for (std::int64_t n = 0; n < count; n += chunk_images_) {
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) f(n, chunk, std::min(chunk_images_, count - n));
    }
  }

  // Adds the pixels of a chunk of `images` images.
  void add(PixelProduct& p, const std::vector<PixelPair>& pixels, std::int64_t images) const {
    p.pixels = pixels.data();
    p.pixel_count = static_cast<std::int64_t>(pixels.size()) / chunk_images_ * images;
    if (p.pixel_count > 0 || !p.accumulate) f32_kernels().pixel_product(p);
  }

  void run_unit(const StridedImages& x, const StridedImages& dy, std::int64_t first, std::int64_t count, std::int64_t tile,
                std::int64_t block, float* packed) const {
    const std::int64_t columns = std::min(kTileColumns, p_.outputs - tile * kTileColumns), taps = blocks_ ? p_.taps() : 1;
    PixelProduct p{.rows = blocks_ ? nullptr : rows_.data(),
                   .row_count = blocks_ ? kBlock : static_cast<std::int64_t>(rows_.size()),
                   .y_block = dy.block,
                   .blocks = blocks_of(columns),
                   .d_block = kBlock * p_.inputs * p_.taps()};
    for_each_chunk(count, [&](std::int64_t n, std::int64_t chunk, std::int64_t images) {
      p.x = x.f32() + n * x.image + block * x.block;
      p.y = dy.f32() + n * dy.image + tile * 2 * dy.block;
      p.accumulate = first + n + chunk > 0;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        p.d = packed + tile * 2 * p.d_block + (block * taps + tap) * kBlock * kBlock;
        add(p, pixels_[static_cast<std::size_t>(chunk * taps + tap)], images);
      }
    });
  }

  // To [O, I, taps].
  void unpack(const float* packed, std::int64_t tile, std::int64_t block, float* dw) const {
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

  Problem p_;
  StridedImages x_, dy_;
  bool blocks_;
  std::int64_t output_pixels_, padded_rows_, padded_columns_;
  // What is summed in one go: this many rows of each of this many images.
  std::int64_t chunk_rows_, chunk_images_ = 1;
  std::int64_t chunks_ = 1;  // of an image's rows
  std::int64_t group_;       // images that are computed together
  std::vector<std::vector<PixelPair>> pixels_;  // by chunk, then tap
  std::vector<std::vector<PixelPair>> bias_pixels_;
  std::vector<std::int64_t> rows_;
};

// All images in memory from which the channels of a group can be taken: a copy where a group begins within a block of channels.
class Groups {
 public:
  Groups(const View& v, std::int64_t groups, bool filled) : images_(StridedImages::of(v)), count_(v.shape[0]) {
    if (groups == 1 || images_.can_slice(images_.channels / groups)) return;
    copy_.resize(static_cast<std::size_t>(v.numel()));
    target_ = std::exchange(images_, StridedImages::channels_last(copy_.data(), images_.channels, images_.pixels));
    if (filled) copy_images(target_, images_, count_);
  }
  StridedImages group(std::int64_t g, std::int64_t channels) const { return images_.slice(g * channels, channels); }
  // Copies back what was written.
  void finish() const {
    if (!copy_.empty()) copy_images(images_, target_, count_);
  }

 private:
  StridedImages images_, target_;
  std::int64_t count_;
  std::vector<float> copy_;
};

class F32Conv final : public ConvKernels {
 public:
  explicit F32Conv(const F32ConvOptions& options) : options_(options) {}

  Layout preferred_layout(DType, std::int64_t channels) const override {
    return channels % kBlock == 0 ? Layout::blocked16 : Layout::channels_last;
  }

  std::int64_t prepared_size(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w,
                             DType dtype) const override {
    const Problem p(options, View{.shape = x}, View{.shape = w}, View{.shape = output_shape(options, x, w)});
    if (uses_winograd(p)) return winograd_weights(p, pass).weights_size();
    return p.groups * packed_size(weights_of(p, nullptr, pass, dtype));
  }

  void prepare(KernelContext& context, ConvPass pass, const Conv2dOptions& options, const Shape& x, const View& w, DType dtype,
               const View& prepared) override {
    const Problem p(options, View{.shape = x}, w, View{.shape = output_shape(options, x, w.shape)});
    if (uses_winograd(p)) {
      return winograd_weights(p, pass).transform(context, weights_of(p, w.as<float>(), pass, dtype), pass == ConvPass::backward_data,
                                                 prepared.as<float>());
    }
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const Weights weights = weights_of(p, w.as<float>() + g * p.weights(), pass, dtype);
      pack(context, weights, prepared.as<float>() + g * packed_size(weights));
    }
  }

  void forward(KernelContext& context, const Conv2dOptions& options, const View& x, const View& w, const View& bias,
               const View& y) override {
    forward_prepared(context, options, x, w, View(), bias, y);
  }
  void forward_prepared(KernelContext& context, const Conv2dOptions& options, const View& x, const View& w, const View& prepared,
                        const View& bias, const View& y) override {
    if (y.numel() == 0) return;
    run_rows(context, Problem(options, x, w, y), ConvPass::forward, x, w, prepared, bias, y);
  }

  void backward_data(KernelContext& context, const Conv2dOptions& options, const View& dy, const View& w,
                     const View& dx) override {
    backward_data_prepared(context, options, dy, w, View(), dx);
  }
  void backward_data_prepared(KernelContext& context, const Conv2dOptions& options, const View& dy, const View& w,
                              const View& prepared, const View& dx) override {
    if (dx.numel() == 0) return;
    run_rows(context, Problem(options, dx, w, dy), ConvPass::backward_data, dy, w, prepared, View(), dx);
  }

  void backward_weights(KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy, const View& dw,
                        const View& db) override {
    if (dy.numel() == 0) {
      for (const View& v : {dw, db}) {
        if (v) std::fill_n(v.as<float>(), v.numel(), 0.f);
      }
      return;
    }
    const Problem p(options, x, dw, dy);
    const bool winograd = uses_winograd(p);
    if (winograd) {
      const WinogradWeightPass pass({p.rows, p.columns}, p.images, StridedImages::of(x), StridedImages::of(dy));
      ScratchParts parts;
      parts.add(pass.scratch());
      pass.run(context, dw.as<float>(), parts.take(context));
      if (!db) return;
    }
    const Groups inputs(x, p.groups, true), gradients(dy, p.groups, true);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const WeightPass pass(p, inputs.group(g, p.inputs), gradients.group(g, p.outputs));
      ScratchParts parts;
      const std::int64_t packed = parts.add(winograd ? 0 : pass.packed_size()), panels = parts.add(pass.scratch() * context.threads);
      float* const scratch = parts.take(context);
      if (!winograd) pass.run(context, scratch + packed, dw.as<float>() + g * p.weights(), scratch + panels);
      if (db) pass.run_bias(context, db.as<float>() + g * p.outputs, scratch + panels);
    }
  }

 private:
  static std::int64_t packed_size(const Weights& weights) { return weights.tiles() * weights.tile_size(); }

  static void pack(const KernelContext& context, const Weights& weights, float* packed) {
    const std::int64_t blocks = weights.term_blocks();
    parallel_for(context, weights.tiles() * blocks, 1, [&](std::int64_t unit, std::int64_t) {
      pack_terms(weights, unit / blocks, unit % blocks, packed + unit * weights.taps * kTap);
    });
  }

  // `prepared` may be absent.
  void run_rows(KernelContext& context, const Problem& p, ConvPass direction, const View& from, const View& w, const View& prepared,
                const View& bias, const View& to) {
    const bool backward = direction == ConvPass::backward_data;
    if (uses_winograd(p)) return run_winograd(context, p, direction, from, w, prepared, bias, to);
    const Groups sources(from, p.groups, true), targets(to, p.groups, false);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const Weights weights = weights_of(p, w.as<float>() + g * p.weights(), direction, from.dtype);
      const std::int64_t terms = weights.terms, columns = weights.columns;
      const RowPass pass(backward ? backward_classes(p.rows) : forward_classes(p.rows),
                         backward ? backward_classes(p.columns) : forward_classes(p.columns), p.columns,
                         backward ? p.columns.output : p.columns.input, backward ? p.columns.input : p.columns.output, p.taps(),
                         p.images, sources.group(g, terms), targets.group(g, columns));
      ScratchParts parts;
      const std::int64_t own = parts.add(prepared ? 0 : packed_size(weights)), padded = parts.add(round_up(columns));
      const std::int64_t panels = parts.add(pass.scratch() * context.threads);
      float* const scratch = parts.take(context);
      if (!prepared) pack(context, weights, scratch + own);
      if (bias) {
        std::fill_n(scratch + padded, round_up(columns), 0.f);
        std::copy_n(bias.as<float>() + g * columns, columns, scratch + padded);
      }
      pass.run(context, prepared ? prepared.as<float>() + g * packed_size(weights) : scratch + own, bias ? scratch + padded : nullptr,
               scratch + panels);
    }
    targets.finish();
  }

  static Shape output_shape(const Conv2dOptions& o, const Shape& x, const Shape& w) {
    const auto extent = [&](int axis) {
      const auto i = static_cast<std::size_t>(axis);
      return (x[2 + axis] + 2 * o.padding[i] - o.dilation[i] * (w[2 + axis] - 1) - 1) / o.stride[i] + 1;
    };
    return {x[0], w[0], extent(0), extent(1)};
  }

  static WinogradTiles winograd_tiles(const Problem& p, ConvPass direction) {
    return direction == ConvPass::backward_data ? WinogradTiles{turned(p.rows), turned(p.columns)} : WinogradTiles{p.rows, p.columns};
  }

  // Only for its weights.
  static WinogradPass winograd_weights(const Problem& p, ConvPass direction) {
    const bool backward = direction == ConvPass::backward_data;
    const StridedImages from = StridedImages::blocked(nullptr, backward ? p.outputs : p.inputs, 1);
    const StridedImages to = StridedImages::blocked(nullptr, backward ? p.inputs : p.outputs, 1);
    return {winograd_tiles(p, direction), p.images, from, to};
  }

  void run_winograd(KernelContext& context, const Problem& p, ConvPass direction, const View& from, const View& w,
                    const View& prepared, const View& bias, const View& to) {
    const WinogradPass pass(winograd_tiles(p, direction), p.images, StridedImages::of(from), StridedImages::of(to));
    ScratchParts parts;
    const std::int64_t own = parts.add(prepared ? 0 : pass.weights_size()), panels = parts.add(pass.scratch() * context.threads);
    float* const scratch = parts.take(context);
    if (!prepared) {
      pass.transform(context, weights_of(p, w.as<float>(), direction, from.dtype), direction == ConvPass::backward_data, scratch + own);
    }
    pass.run(context, prepared ? prepared.as<float>() : scratch + own, bias ? bias.as<float>() : nullptr, scratch + panels);
  }

  bool uses_winograd(const Problem& p) const {
    return !options_.direct && p.groups == 1 && winograd_pays(p.rows, p.columns, p.images, p.inputs, p.outputs);
  }

  F32ConvOptions options_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<ConvKernels> make_f32_conv(const F32ConvOptions& options) { return std::make_unique<cpu::F32Conv>(options); }

}  // namespace lockstep
