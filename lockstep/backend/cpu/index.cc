#include "lockstep/backend/index.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep {
namespace {

void check_index(const View& index, std::int64_t m) {
  const auto* number = index.as<std::int64_t>();
  for (std::int64_t i = 0; i < index.numel(); ++i) {
    check(number[i] >= 0 && number[i] < m, "index: {} at place {} is outside [0, {})", number[i], i, m);
  }
}

// Strides to find index[a, i, b].
struct IndexStrides {
  std::int64_t outer, along, inner;

  explicit IndexStrides(const Shape& s) : outer(s[0] == 1 ? 0 : s[1] * s[2]), along(s[2]), inner(s[2] == 1 ? 0 : 1) {}
};

class CpuIndex final : public IndexKernels {
 public:
  void run(KernelContext& ctx, const kernels::Take& call) override {
    const std::int64_t m = call.x.shape[1], n = call.y.shape[1], inner = call.y.shape[2];
    if (call.y.numel() == 0) return;
    check_index(call.index, m);
    const IndexStrides at(call.index.shape);
    constexpr std::int64_t kElementsPerChunk = 16384;
    cpu::visit_bits(call.x.dtype, [&, number = call.index.as<std::int64_t>()](auto bits) {
      using Bits = decltype(bits);
      const auto* in = static_cast<const Bits*>(call.x.data);
      auto* out = static_cast<Bits*>(call.y.data);
      parallel_for(ctx, call.y.shape[0] * n, std::max<std::int64_t>(kElementsPerChunk / inner, 1),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const std::int64_t a = row / n;
                       const std::int64_t* j = number + a * at.outer + row % n * at.along;
                       const Bits* from = in + a * m * inner;
                       Bits* to = out + row * inner;
                       if (at.inner == 0) {
                         std::memcpy(to, from + *j * inner, static_cast<std::size_t>(inner) * sizeof(Bits));
                       } else {
                         for (std::int64_t b = 0; b < inner; ++b) to[b] = from[j[b] * inner + b];
                       }
                     }
                   });
    });
  }

  void run(KernelContext& ctx, const kernels::ScatterSum& call) override {
    if (call.y.numel() == 0) return;
    check_index(call.index, call.y.shape[1]);
    cpu::visit_floating(call.y.dtype, "scatter_add", [&](auto zero) {
      using T = decltype(zero);
      using Sum = decltype(cpu::widened(zero));
      Sum* sums = nullptr;
      if constexpr (is_half<T>) {
        sums = static_cast<Sum*>(ctx.scratch.get(static_cast<std::size_t>(call.y.numel()) * sizeof(Sum)));
      } else {
        sums = call.y.as<T>();
      }
      add_up(ctx, call.x.as<T>(), call.x.shape, call.index, sums, call.y.shape[1]);
      if constexpr (is_half<T>) {
        cpu::parallel_vector_loop(ctx, call.y.numel(),
                                  [=, out = call.y.as<T>()](std::int64_t i) { out[i] = T(sums[i]); });
      }
    });
  }

  void run(KernelContext& ctx, const kernels::Scatter& call) override {
    const std::int64_t m = call.y.shape[1], n = call.x.shape[1], inner = call.y.shape[2];
    if (call.x.numel() == 0) return;
    check_index(call.index, m);
    const IndexStrides at(call.index.shape);
    constexpr std::int64_t kColumns = 256;
    const std::int64_t strips = (inner + kColumns - 1) / kColumns;
    cpu::visit_bits(call.x.dtype, [&, number = call.index.as<std::int64_t>()](auto bits) {
      using Bits = decltype(bits);
      const auto* in = static_cast<const Bits*>(call.x.data);
      auto* out = static_cast<Bits*>(call.y.data);
      // A thread gets whole columns, so the last of equal indices wins.
      parallel_for(ctx, call.x.shape[0] * strips, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t strip = begin; strip < end; ++strip) {
          const std::int64_t a = strip / strips, first = strip % strips * kColumns;
          const std::int64_t width = std::min(kColumns, inner - first);
          for (std::int64_t i = 0; i < n; ++i) {
            const Bits* from = in + (a * n + i) * inner + first;
            const std::int64_t* j = number + a * at.outer + i * at.along + first * at.inner;
            Bits* to = out + a * m * inner + first;
            for (std::int64_t b = 0; b < width; ++b) to[j[b * at.inner] * inner + b] = from[b];
          }
        }
      });
    });
  }

 private:
  // A thread gets whole columns, so it computes each sum alone, in the order of the index.
  template <typename T, typename Sum>
  static void add_up(const KernelContext& ctx, const T* x, const Shape& shape, const View& index, Sum* sums,
                     std::int64_t m) {
    const std::int64_t n = shape[1], inner = shape[2];
    const IndexStrides at(index.shape);
    const auto* number = index.as<std::int64_t>();
    constexpr std::int64_t kColumns = 256;
    const std::int64_t strips = (inner + kColumns - 1) / kColumns;
    parallel_for(ctx, shape[0] * strips, 1, [&](std::int64_t begin, std::int64_t end) {
      cpu::vectorized([&] {
        for (std::int64_t strip = begin; strip < end; ++strip) {
          const std::int64_t a = strip / strips, first = strip % strips * kColumns;
          const std::int64_t width = std::min(kColumns, inner - first);
          Sum* out = sums + a * m * inner + first;
          for (std::int64_t j = 0; j < m; ++j) std::fill_n(out + j * inner, width, Sum(0));
          for (std::int64_t i = 0; i < n; ++i) {
            const T* in = x + (a * n + i) * inner + first;
            const std::int64_t* j = number + a * at.outer + i * at.along + first * at.inner;
            if (at.inner == 0) {
              Sum* row = out + *j * inner;
              cpu::vector_loop(0, width, [=](std::int64_t b) { row[b] += cpu::widened(in[b]); });
            } else {
              for (std::int64_t b = 0; b < width; ++b) out[j[b] * inner + b] += cpu::widened(in[b]);
            }
          }
        }
      });
    });
  }
};

}  // namespace

std::unique_ptr<IndexKernels> make_cpu_index() { return std::make_unique<CpuIndex>(); }

}  // namespace lockstep
