#include "lockstep/backend/cpu/f32_matmul.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/f32_runs.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep {
namespace cpu {
namespace {

// Number of rows that are computed together. kPackedTerms terms of these rows stay in the second-level cache. Neither
// constant affects the bits.
constexpr std::int64_t kRows = 96, kPackedTerms = 4 * kTerms;
// Maximum number of f32 of packed weights, unless one tile takes more: they stay in the third-level cache.
constexpr std::int64_t kPacked = 1 << 20;
// Below kFewRows, packing b is a noticeable part of a product; below kSmallWeights, a task takes longer than packing.
constexpr std::int64_t kFewRows = 512, kSmallWeights = 1 << 12;

Weights weights_of(const View& b, bool transposed, DType rounded) {
  const std::int64_t stride = b.shape[1];
  Weights w{.data = b.data, .dtype = b.dtype, .rounded = rounded};
  w.terms = b.shape[transposed ? 1 : 0], w.columns = b.shape[transposed ? 0 : 1];
  w.term_stride = transposed ? 1 : stride, w.column_stride = transposed ? stride : 1;
  return w;
}

// c = a b + bias for a [m, k] and b [k, n]. Either may be transposed in memory.
class Product {
 public:
  Product(const KernelContext& context, const MatmulOptions& options, const View& a, const WeightView& b,
          const View& bias, const View& c)
      : a_(matrix(a, options.transpose_a)), b_(weights_of(b, options.transpose_b, a.dtype)),
        prepared_(b.prepared ? b.prepared.as<float>() : nullptr), bias_(bias ? bias.as<float>() : nullptr), c_(c),
        m_(c.shape[0]), k_(b_.terms), n_(b_.columns), in_place_(c.dtype == DType::f32 && n_ % kBlock == 0),
        // A copy of c's rows must hold whole sums.
        depth_(in_place_ ? std::min(k_, kPackedTerms) : k_),
        rows_(std::min({m_, kRows, std::max<std::int64_t>(1, ceil_div(m_, context.threads))})),
        by_terms_(!a_.readable() && a_.dtype == DType::f32 && !bias) {
    tiles_ = std::clamp<std::int64_t>(kPacked / (kTileColumns * std::max(round_up(depth_), kBlock)), 1, b_.tiles());
    for (std::int64_t r = 0; r < rows_; ++r) {
      a_rows_[static_cast<std::size_t>(r)] = r * (copies_a() ? copied_row() : a_.pixel);
      c_rows_[static_cast<std::size_t>(r)] = r * c_row();
    }
    if (by_terms_) {
      for (std::int64_t t = 0; t < kTerms; ++t) terms_[static_cast<std::size_t>(t)] = {t * rows_, t * kTileColumns};
    }
    padded_ = parts_.add(b_.tiles() * kTileColumns);
    packed_ = parts_.add(prepared_ ? 0 : tiles_ * blocks_of(depth_) * kTap);
    thread_size_ = panel_size() + copy_size();
    threads_ = parts_.add(thread_size_ * context.threads);
  }

  void run(KernelContext& context) const {
    float* const scratch = parts_.take(context);
    float *const bias = scratch + padded_, *const packed = scratch + packed_;
    if (bias_) {
      std::fill_n(bias, b_.tiles() * kTileColumns, 0.f);
      std::copy_n(bias_, n_, bias);
    }
    const std::int64_t panels = ceil_div(m_, rows_);
    for (std::int64_t tile = 0; tile < b_.tiles(); tile += tiles_) {
      const std::int64_t tiles = std::min(tiles_, b_.tiles() - tile);
      for (std::int64_t term = 0; term == 0 || term < k_; term += depth_) {
        const std::int64_t terms = std::min(depth_, k_ - term), column = tile * kTileColumns;
        const Weights part = b_.part(column, std::min(tiles * kTileColumns, n_ - column), term, terms);
        if (!prepared_) pack(context, part, packed);
        const float* const weights = prepared_ ? prepared_ + tile * b_.tile_size() + term / kBlock * kTap : packed;
        const std::int64_t tile_size = prepared_ ? b_.tile_size() : part.tile_size();
        for_each_thread(context, panels * tiles, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
          float *const panel = scratch + threads_ + thread * thread_size_, *const copy = panel + panel_size();
          std::int64_t copied = -1;
          for (std::int64_t unit = begin; unit < end; ++unit) {
            const std::int64_t first = unit / tiles * rows_, count = std::min(rows_, m_ - first);
            const float* a = a_.f32() + first * a_.pixel + term * a_.channel;
            if (copies_a()) {
              if (copied != first) copy_rows(first, count, term, terms, copy);
              copied = first;
              a = copy;
            }
            run_tile(a, first, count, term, terms, tile + unit % tiles, bias_ ? bias : nullptr,
                     weights + unit % tiles * tile_size, tile_size, panel);
          }
        });
        if (k_ == 0) break;
      }
    }
  }

 private:
  // The matrix as pixels with channels: each row is a pixel, and the row's elements are the pixel's channels.
  static StridedImages matrix(const View& a, bool transposed) {
    StridedImages images{.data = a.data, .dtype = a.dtype};
    images.pixels = a.shape[transposed ? 1 : 0], images.channels = a.shape[transposed ? 0 : 1];
    images.pixel = transposed ? 1 : a.shape[1], images.channel = transposed ? a.shape[1] : 1;
    images.block = kBlock * images.channel;
    return images;
  }

  // Rows whose stride is a multiple of 256 elements share few sets of the first-level cache and would be evicted before
  // the next tile reads them.
  bool copies_a() const { return !a_.readable() || (a_.pixel % 256 == 0 && b_.tiles() > 2); }
  // Number of f32 in a tile of rows of c, if c cannot be written in place.
  std::int64_t panel_size() const { return in_place_ ? 0 : rows_ * kTileColumns; }
  std::int64_t c_row() const { return in_place_ ? n_ : kTileColumns; }
  std::int64_t copied_row() const { return round_up(depth_) + kBlock; }
  std::int64_t copy_size() const { return copies_a() ? rows_ * copied_row() : 0; }

  // Copies terms [term, term + terms) of rows [first, first + count) of a, in f32.
  void copy_rows(std::int64_t first, std::int64_t count, std::int64_t term, std::int64_t terms, float* to) const {
    const StridedImages from = a_.slice(term, terms).pixels_from(first, count);
    if (by_terms_) {
      for (std::int64_t t = 0; t < terms; ++t) std::copy_n(from.f32() + t * from.channel, count, to + t * rows_);
    } else if (from.readable()) {
      for (std::int64_t r = 0; r < count; ++r) std::copy_n(from.f32() + r * from.pixel, terms, to + r * copied_row());
    } else {
      StridedImages copy = StridedImages::channels_last(to, terms, count);
      copy.pixel = copied_row();
      copy_images(from, copy, 1);
    }
  }

  void run_tile(const float* a, std::int64_t first, std::int64_t count, std::int64_t term, std::int64_t terms,
                std::int64_t tile, const float* bias, const float* packed, std::int64_t tile_size, float* panel) const {
    const std::int64_t column = tile * kTileColumns, columns = std::min(kTileColumns, n_ - column);
    float* const sums = in_place_ ? c_.as<float>() + first * n_ + column : panel;
    multiply(a, count, term, terms, columns, bias ? bias + column : nullptr, packed, tile_size, sums);
    if (in_place_) return;
    StridedImages from = StridedImages::channels_last(panel, columns, count);
    from.pixel = kTileColumns;
    copy_images(from, matrix(c_, false).pixels_from(first, count).slice(column, columns), 1);
  }

  void multiply(const float* a, std::int64_t count, std::int64_t term, std::int64_t terms, std::int64_t columns,
                const float* bias, const float* packed, std::int64_t tile_size, float* sums) const {
    if (by_terms_) {
      return multiply_runs(PixelProduct{.x = a,
                                        .row_count = count,
                                        .y = packed,
                                        .y_block = kBlock,
                                        .blocks = blocks_of(columns),
                                        .pixels = terms_.data(),
                                        .d = sums,
                                        .d_row = c_row(),
                                        .d_block = kBlock,
                                        .accumulate = term > 0},
                           terms);
    }
    multiply_runs({.x = a,
                   .x_rows = a_rows_.data(),
                   .y = sums,
                   .y_rows = c_rows_.data(),
                   .rows = count,
                   .y_block = kBlock,
                   .w = packed,
                   .blocks = blocks_of(columns),
                   .ahead = tile_size,
                   .accumulate = term > 0,
                   .bias = term + terms == k_ ? bias : nullptr},
                  terms);
  }

  StridedImages a_;
  Weights b_;
  const float* prepared_;  // packed b, or null
  const float* bias_;
  View c_;
  std::int64_t m_, k_, n_;
  bool in_place_;
  std::int64_t depth_, rows_, tiles_;  // terms, rows, and tiles computed together
  // Whether rows lie side by side and are copied so, term after term, without a transposition. pixel_product, which
  // reads them, adds no bias.
  bool by_terms_;
  std::array<std::int64_t, kRows> a_rows_, c_rows_;
  std::array<PixelPair, kTerms> terms_;
  ScratchParts parts_;
  std::int64_t padded_, packed_, threads_, thread_size_;
};

class F32Matmul final : public MatmulKernels {
 public:
  std::int64_t prepared_size(const MatmulOptions& options, std::int64_t rows, const Shape& b, DType) const override {
    const std::int64_t size = weights_of({.shape = b}, options.transpose_b, DType::f32).packed_size();
    // With few terms or columns, padding would more than double the memory.
    return rows >= kFewRows || b.numel() < kSmallWeights || size > 2 * b.numel() ? 0 : size;
  }
  using MatmulKernels::run;
  void run(KernelContext& context, const kernels::PrepareMatmul& call) override {
    pack(context, weights_of(call.b, call.options.transpose_b, call.dtype), call.prepared.as<float>());
  }
  void run(KernelContext& context, const kernels::Matmul& call) override {
    if (call.c.numel() == 0) return;
    Product(context, call.options, call.a, call.b, call.bias, call.c).run(context);
  }
};

}  // namespace
}  // namespace cpu

std::unique_ptr<MatmulKernels> make_f32_matmul() { return std::make_unique<cpu::F32Matmul>(); }

}  // namespace lockstep
