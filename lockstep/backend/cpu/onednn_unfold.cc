#include "lockstep/backend/cpu/onednn_unfold.h"

#include <algorithm>

#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::onednn {
namespace {

constexpr std::int64_t kMaxUnfolded = 32 << 20;  // elements

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

bool is_channels_last(const View& v) { return same_order(v.layout, Layout::channels_last, v.shape); }

// Writes unfold(x): its rows are (n, h', w'), its columns (kh, kw, c).
void unfold(const KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy, const View& dw,
            BFloat16* to) {
  const std::int64_t c = x.shape[1], h = x.shape[2], w = x.shape[3];
  const std::int64_t kh = dw.shape[2], kw = dw.shape[3], rows = dy.shape[2], columns = dy.shape[3];
  const auto* from = x.as<BFloat16>();
  parallel_for(context, dy.shape[0] * rows, 1, [&](std::int64_t row, std::int64_t) {
    const std::int64_t n = row / rows, top = row % rows * options.stride[0] - options.padding[0];
    BFloat16* out = to + row * columns * kh * kw * c;
    for (std::int64_t j = 0; j < columns; ++j) {
      // Taps [first, last) of a kernel row are inside the image, adjacent in memory.
      const std::int64_t left = j * options.stride[1] - options.padding[1];
      const std::int64_t first = std::clamp<std::int64_t>(-left, 0, kw);
      const std::int64_t last = std::clamp<std::int64_t>(w - left, first, kw);
      for (std::int64_t r = 0; r < kh; ++r, out += kw * c) {
        const std::int64_t y = top + r * options.dilation[0];
        if (y < 0 || y >= h) {
          std::fill_n(out, kw * c, BFloat16());
          continue;
        }
        std::fill_n(out, first * c, BFloat16());
        std::copy_n(from + ((n * h + y) * w + left + first) * c, (last - first) * c, out + first * c);
        std::fill_n(out + last * c, (kw - last) * c, BFloat16());
      }
    }
  });
}

// Converts [O, KH, KW, C] to [O, C, KH, KW].
void fold_weights(const KernelContext& context, const float* from, const View& dw) {
  const std::int64_t c = dw.shape[1], taps = dw.shape[2] * dw.shape[3];
  parallel_for(context, dw.shape[0], 1, [&](std::int64_t o, std::int64_t) {
    const float* in = from + o * c * taps;
    float* out = dw.as<float>() + o * c * taps;
    for (std::int64_t q = 0; q < c; ++q) {
      for (std::int64_t t = 0; t < taps; ++t) out[q * taps + t] = in[t * c + q];
    }
  });
}

void sum_pixels(const KernelContext& context, const View& dy, const View& db) {
  const std::int64_t o = dy.shape[1], pixels = dy.numel() / o;
  constexpr std::int64_t kChannels = 64;
  parallel_for(context, o, kChannels, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      float sums[kChannels] = {};
      for (std::int64_t p = 0; p < pixels; ++p) {
        const BFloat16* row = dy.as<BFloat16>() + p * o;
        for (std::int64_t i = begin; i < end; ++i) sums[i - begin] += static_cast<float>(row[i]);
      }
      std::copy_n(sums, end - begin, db.as<float>() + begin);
    });
  });
}

}  // namespace

bool unfolding_pays(const Conv2dOptions& options, const View& x, const View& dy, const View& dw) {
  if (x.dtype != DType::bf16 || options.groups != 1 || !is_channels_last(x) || !is_channels_last(dy)) return false;
  if (options.dilation[1] != 1) return false;  // the taps of a row must be adjacent
  const std::int64_t pixels = dy.numel() / dy.shape[1], weights = dw.numel() / dw.shape[0];
  const std::int64_t w = dy.shape[3], c = x.shape[1];
  return 4 * w * c < round_up(w, 32) * round_up(c, 16) && pixels * weights <= kMaxUnfolded;
}

void backward_weights_unfolded(Executor& executor, KernelContext& context, const Conv2dOptions& options, const View& x,
                               const View& dy, const View& dw, const View& db) {
  const std::int64_t o = dy.shape[1], pixels = dy.numel() / o, weights = dw.numel() / dw.shape[0];
  View a = dy, b{nullptr, DType::bf16, Layout::plain, {pixels, weights}};
  View c{nullptr, DType::f32, Layout::plain, {o, weights}};
  a.layout = Layout::plain;
  a.shape = {pixels, o};
  Problem problem{.kind = Kind::matmul, .transpose_x = true};
  problem.operands = {OperandSpec::of(a), OperandSpec::of(b), OperandSpec{}, OperandSpec::of(c)};
  const std::shared_ptr<Plan> product = executor.plan(context, problem);

  const std::size_t b_bytes = round_up(b.bytes(), 64), c_bytes = round_up(c.bytes(), 64);
  auto* scratch = static_cast<std::byte*>(context.scratch.get(b_bytes + c_bytes + product->scratch_bytes()));
  unfold(context, options, x, dy, dw, reinterpret_cast<BFloat16*>(scratch));
  auto* folded = reinterpret_cast<float*>(scratch + b_bytes);
  product->run({a.data, scratch, nullptr, folded}, scratch + b_bytes + c_bytes);
  fold_weights(context, folded, dw);
  if (db) sum_pixels(context, dy, db);
}

}  // namespace lockstep::onednn
