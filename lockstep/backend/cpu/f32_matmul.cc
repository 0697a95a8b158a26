#include "lockstep/backend/cpu/f32_matmul.h"

#include <algorithm>
#include <vector>

#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep {
namespace cpu {
namespace {

// Rows that are computed together, and terms that are packed together: a multiple of kTerms. Neither decides bits.
constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kPackedTerms = 16 * kTerms;
// What a copy of rows of a may take, in f32, unless it is fewer rows than this.
constexpr std::int64_t kCopy = 256 << 10, kLeastCopiedRows = 24;

// c = a b + bias for a [m, k] and b [k, n], either of which may be transposed in memory.
class Product {
 public:
  Product(const KernelContext& context, const MatmulOptions& options, const View& a, const View& b, const View& bias,
          const View& c)
      : a_(matrix(a, options.transpose_a)),
        b_(weights(b, options.transpose_b, a.dtype)),
        bias_(bias ? bias.as<float>() : nullptr),
        c_(c),
        m_(c.shape[0]),
        k_(b_.terms),
        copies_a_(!a_.readable()),
        copies_c_(c.dtype != DType::f32) {
    rows_ = copies_a_ ? std::clamp(kCopy / std::max<std::int64_t>(k_, 1), kLeastCopiedRows, kRows) : kRows;
    // At least one part for each thread.
    if (b_.tiles() < context.threads) rows_ = std::min(rows_, std::max<std::int64_t>(1, ceil_div(m_, context.threads)));
    rows_ = std::min(rows_, m_);
    for (std::int64_t s = 0; s < kTerms / kBlock; ++s) steps_.push_back({s * kBlock, s * kTap});
    for (std::int64_t r = 0; r < rows_; ++r) {
      a_rows_.push_back(r * (copies_a_ ? k_ : a_.pixel));
      c_rows_.push_back(r * b_.columns);
      panel_rows_.push_back(r * kTileColumns);
    }
    padded_ = parts_.add(b_.tiles() * kTileColumns);
    thread_size_ = packed_size() + panel_size() + copy_size();
    threads_ = parts_.add(thread_size_ * context.threads);
  }

  void run(KernelContext& context) const {
    float* const scratch = parts_.take(context);
    float* const bias = scratch + padded_;
    if (bias_) {
      std::fill_n(bias, b_.tiles() * kTileColumns, 0.f);
      std::copy_n(bias_, b_.columns, bias);
    }
    const std::int64_t tiles = b_.tiles(), panels = ceil_div(m_, rows_);
    for_each_thread(context, tiles * panels, [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
      float* const packed = scratch + threads_ + thread * thread_size_;
      float *const panel = packed + packed_size(), *const copy = panel + panel_size();
      std::int64_t copied = -1;
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t first = unit / tiles * rows_, count = std::min(rows_, m_ - first);
        const float* a = a_.f32() + first * a_.pixel;
        if (copies_a_) {
          if (copied != first) copy_rows(first, count, copy);
          copied = first;
          a = copy;
        }
        run_tile(a, first, count, unit % tiles, bias_ ? bias : nullptr, packed, panel);
      }
    });
  }

 private:
  // a as images of one pixel a row, whose channels are its columns.
  static StridedImages matrix(const View& a, bool transposed) {
    const std::int64_t rows = a.shape[transposed ? 1 : 0], columns = a.shape[transposed ? 0 : 1];
    const std::int64_t row = transposed ? 1 : columns, column = transposed ? rows : 1;
    return {.data = a.data,
            .dtype = a.dtype,
            .channels = columns,
            .pixels = rows,
            .block = kBlock * column,
            .pixel = row,
            .channel = column};
  }
  static Weights weights(const View& b, bool transposed, DType rounded) {
    const std::int64_t stride = b.shape[1];
    Weights w{.data = b.data, .dtype = b.dtype, .rounded = rounded};
    w.terms = b.shape[transposed ? 1 : 0], w.columns = b.shape[transposed ? 0 : 1];
    w.term_stride = transposed ? 1 : stride, w.column_stride = transposed ? stride : 1;
    return w;
  }

  std::int64_t packed_size() const { return std::min(b_.term_blocks(), kPackedTerms / kBlock) * kTap; }
  // Room for a tile of c, where its rows are not written in place.
  std::int64_t panel_size() const { return rows_ * kTileColumns; }
  std::int64_t copy_size() const { return copies_a_ ? round_up(rows_ * k_) : 0; }

  // Rows [first, first + count) of a, in f32, one after the other.
  void copy_rows(std::int64_t first, std::int64_t count, float* to) const {
    StridedImages from = a_;
    from.data = static_cast<std::byte*>(a_.data) + static_cast<std::size_t>(first * a_.pixel) * item_size(a_.dtype);
    from.pixels = count;
    copy_images(from, StridedImages::channels_last(to, k_, count), 1);
  }

  void run_tile(const float* a, std::int64_t first, std::int64_t count, std::int64_t tile, const float* bias, float* packed,
                float* panel) const {
    const std::int64_t column = tile * kTileColumns, columns = std::min(kTileColumns, b_.columns - column);
    const bool in_place = !copies_c_ && columns % kBlock == 0;
    RowProduct p{.x_rows = a_rows_.data(),
                 .y = in_place ? static_cast<float*>(c_.data) + first * b_.columns + column : panel,
                 .y_rows = in_place ? c_rows_.data() : panel_rows_.data(),
                 .rows = count,
                 .y_block = kBlock,
                 .steps = steps_.data(),
                 .blocks = blocks_of(columns)};
    if (k_ == 0) {  // the bias, or zero
      p.bias = bias ? bias + column : nullptr;
      f32_kernels().row_product(p);
    }
    for (std::int64_t from = 0; from < k_; from += kPackedTerms) {
      const std::int64_t to = std::min(from + kPackedTerms, k_);
      for (std::int64_t t = from; t < to; t += kBlock) pack_terms(b_, tile, t / kBlock, packed + (t - from) / kBlock * kTap);
      for (std::int64_t t = from; t < to;) {
        // Terms that do not fill a block are a run of their own.
        const std::int64_t whole = std::min(kTerms, (to - t) / kBlock * kBlock);
        p.terms = whole > 0 ? kBlock : to - t;
        p.step_count = whole > 0 ? whole / kBlock : 1;
        p.x = a + t;
        p.w = packed + (t - from) / kBlock * kTap;
        p.accumulate = t > 0;
        t += whole > 0 ? whole : to - t;
        p.bias = bias && t == k_ ? bias + column : nullptr;
        f32_kernels().row_product(p);
      }
    }
    if (in_place) return;
    const StridedImages result{.data = panel, .channels = columns, .pixels = count, .block = kBlock, .pixel = kTileColumns};
    StridedImages target{.data = c_.data, .dtype = c_.dtype, .channels = columns, .pixels = count, .block = kBlock, .pixel = b_.columns};
    target.data = static_cast<std::byte*>(c_.data) + static_cast<std::size_t>(first * b_.columns + column) * item_size(c_.dtype);
    copy_images(result, target, 1);
  }

  StridedImages a_;
  Weights b_;
  const float* bias_;
  View c_;
  std::int64_t m_, k_;
  bool copies_a_, copies_c_;
  std::int64_t rows_;  // that are computed together
  std::vector<Step> steps_;
  std::vector<std::int64_t> a_rows_, c_rows_, panel_rows_;
  ScratchParts parts_;
  std::int64_t padded_, threads_, thread_size_;
};

class F32Matmul final : public MatmulKernels {
 public:
  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const View& b, const View& bias,
              const View& c) override {
    if (c.numel() == 0) return;
    Product(context, options, a, b, bias, c).run(context);
  }
};

}  // namespace
}  // namespace cpu

std::unique_ptr<MatmulKernels> make_f32_matmul() { return std::make_unique<cpu::F32Matmul>(); }

}  // namespace lockstep
