#include "lockstep/backend/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "lockstep/backend/cpu/broadcast.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/backend/formulas.h"
#include "lockstep/backend/sum_grain.h"

namespace lockstep {
namespace {

// Ways to combine elements, in f64, or for i64 in i64: `kNone` is the result over no elements, and fold(n, term)
// returns the result over term(0) to term(n - 1).
struct Sum {
  using Total = double;
  static constexpr double kNone = 0;
  static double join(double a, double b) { return a + b; }
  template <typename F>
  static double fold(std::int64_t n, const F& term) {
    return cpu::lane_sum(n, term);
  }
};

struct Max {
  using Total = double;
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  // NaN stays.
  static double join(double a, double b) { return (a != a) | (a > b) ? a : b; }
  template <typename F>
  static double fold(std::int64_t n, const F& term) {
    constexpr std::int64_t kLanes = 16;
    double lanes[kLanes];
    std::fill_n(lanes, kLanes, kNone);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = join(lanes[lane], term(i + lane));
    }
    for (std::int64_t lane = 0; i + lane < n; ++lane) lanes[lane] = join(lanes[lane], term(i + lane));
    double largest = kNone;
    for (double x : lanes) largest = join(largest, x);
    return largest;
  }
};

struct IntegerSum {
  using Total = std::int64_t;
  static constexpr Total kNone = 0;
  static Total join(Total a, Total b) { return integer_formula<BinaryOp::add>(a, b); }
  template <typename F>
  static Total fold(std::int64_t n, const F& term) {
    Total sum = kNone;
    for (std::int64_t i = 0; i < n; ++i) sum = join(sum, term(i));
    return sum;
  }
};

struct IntegerMax {
  using Total = std::int64_t;
  static constexpr Total kNone = std::numeric_limits<Total>::min();
  static Total join(Total a, Total b) { return a > b ? a : b; }
  template <typename F>
  static Total fold(std::int64_t n, const F& term) {
    Total largest = kNone;
    for (std::int64_t i = 0; i < n; ++i) largest = join(largest, term(i));
    return largest;
  }
};

// Calls visitor with an element of i64 or of a floating dtype.
template <typename Visitor>
void visit_number(DType dtype, std::string_view operation, const Visitor& visitor) {
  dtype == DType::i64 ? visitor(std::int64_t{}) : cpu::visit_floating(dtype, operation, visitor);
}

template <typename Fold, typename T>
void reduce_as(KernelContext& ctx, const View& x, const View& y) {
  const T* in = x.as<T>();
  T* out = y.as<T>();
  const std::int64_t width = y.numel();
  // Each chunk of x has results of its own: at most an eighth as many as a full chunk has elements.
  const std::int64_t grain = std::max(kSumGrain, 8 * width);
  const std::int64_t chunks = (x.numel() + grain - 1) / grain;
  using Total = typename Fold::Total;
  auto* results = static_cast<Total*>(ctx.scratch.get(chunks * width * sizeof(Total)));
  const cpu::BroadcastPlan<2> plan({y.shape, x.shape}, x.shape);
  parallel_for(ctx, x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    Total* chunk = results + begin / grain * width;
    std::fill_n(chunk, width, Fold::kNone);
    cpu::vectorized([&] {
      plan.for_each_run(begin, end, [&](const cpu::BroadcastPlan<2>::Run& run) {
        const T* u = in + run.at[1];
        Total* result = chunk + run.at[0];
        if (plan.repeats(0)) {
          *result = Fold::join(*result, Fold::fold(run.length, [=](std::int64_t i) { return cpu::widened(u[i]); }));
        } else {
          cpu::vector_loop(0, run.length,
                           [=](std::int64_t i) { result[i] = Fold::join(result[i], cpu::widened(u[i])); });
        }
      });
    });
  });
  for (std::int64_t i = 0; i < width; ++i) {
    Total total = Fold::kNone;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total = Fold::join(total, results[chunk * width + i]);
    out[i] = cpu::convert<T>(total);
  }
}

// Sums tile after tile over all leaves, so every leaf is read once and intermediate sums stay in the cache.
template <typename T>
class TreeSum {
 public:
  explicit TreeSum(std::span<const View> leaves) : leaves_(leaves) {}

  void run(std::int64_t begin, std::int64_t end, T* out) {
    for (; begin < end; begin += kTile) {
      const std::int64_t length = std::min(kTile, end - begin);
      auto leaf = [&](std::size_t k) {
        return leaves_[k] ? std::optional(Part{leaves_[k].as<T>() + begin, nullptr}) : std::nullopt;
      };
      auto join = [&](const Part& a, const Part& b) { return std::optional(add(a, b, length)); };
      std::copy_n(tree_fold(0, leaves_.size(), leaf, join)->data, length, out + begin);
      used_ = 0;
    }
  }

 private:
  static constexpr std::int64_t kTile = 512;

  // A tile of a leaf, or of a sum, which is in one of tiles_: `own`.
  struct Part {
    const T* data;
    T* own;
  };

  Part add(const Part& a, const Part& b, std::int64_t length) {
    if (a.own && b.own) --used_;  // frees b's tile, the last one taken
    T* sum = a.own ? a.own : b.own ? b.own : tiles_[used_++].data();
    cpu::vectorized(
        [&, u = a.data, v = b.data] { cpu::vector_loop(0, length, [=](std::int64_t i) { sum[i] = u[i] + v[i]; }); });
    return {sum, sum};
  }

  std::span<const View> leaves_;
  // One tile for every level of the tree.
  std::array<std::array<T, kTile>, 32> tiles_;
  std::size_t used_ = 0;
};

template <typename T>
void tree_sum_as(const KernelContext& ctx, std::span<const View> leaves, const View& out) {
  T* sum = out.as<T>();
  constexpr std::int64_t kGrain = 16384;
  parallel_for(ctx, out.numel(), kGrain,
               [&](std::int64_t begin, std::int64_t end) { TreeSum<T>(leaves).run(begin, end, sum); });
}

class Reduce final : public ReduceKernels {
 public:
  void run(KernelContext& ctx, const kernels::SumTo& call) override {
    if (call.x.dtype == DType::i64) return reduce_as<IntegerSum, std::int64_t>(ctx, call.x, call.y);
    cpu::visit_floating(call.x.dtype, "sum_to",
                        [&](auto zero) { reduce_as<Sum, decltype(zero)>(ctx, call.x, call.y); });
  }

  void run(KernelContext& ctx, const kernels::MaxTo& call) override {
    if (call.x.dtype == DType::i64) return reduce_as<IntegerMax, std::int64_t>(ctx, call.x, call.y);
    cpu::visit_floating(call.x.dtype, "max_to",
                        [&](auto zero) { reduce_as<Max, decltype(zero)>(ctx, call.x, call.y); });
  }

  void run(KernelContext& ctx, const kernels::Cumsum& call) override {
    visit_number(call.x.dtype, "cumsum", [&](auto zero) {
      using T = decltype(zero);
      using Fold = std::conditional_t<std::is_same_v<T, std::int64_t>, IntegerSum, Sum>;
      using Total = typename Fold::Total;
      const std::int64_t n = call.x.shape[1], inner = call.x.shape[2];
      // Number of columns that are summed side by side.
      constexpr std::int64_t kColumns = 64;
      const std::int64_t strips = (inner + kColumns - 1) / kColumns;
      parallel_for(ctx, call.x.shape[0] * strips, 1,
                   [&, in = call.x.as<T>(), out = call.y.as<T>()](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t strip = begin; strip < end; ++strip) {
                       const std::int64_t column = strip % strips * kColumns,
                                          width = std::min(kColumns, inner - column);
                       Total sums[kColumns] = {};
                       for (std::int64_t k = 0; k < n; ++k) {
                         const std::int64_t row = strip / strips * n + (call.reverse ? n - 1 - k : k);
                         const T* u = in + row * inner + column;
                         T* v = out + row * inner + column;
                         for (std::int64_t i = 0; i < width; ++i) {
                           sums[i] = Fold::join(sums[i], cpu::widened(u[i]));
                           v[i] = cpu::convert<T>(sums[i]);
                         }
                       }
                     }
                   });
    });
  }

  // NaN counts as the largest, as in max pooling.
  void run(KernelContext& ctx, const kernels::Argmax& call) override {
    visit_number(call.x.dtype, "argmax", [&](auto zero) {
      using T = decltype(zero);
      const T* in = call.x.as<T>();
      auto* out = call.y.as<std::int64_t>();
      const std::int64_t k = call.x.shape[1];
      const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(k, 1));
      parallel_for(ctx, call.x.shape[0], grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const T* u = in + row * k;
          std::int64_t best = 0;
          auto largest = cpu::widened(u[0]);
          for (std::int64_t i = 1; i < k; ++i) {
            auto value = cpu::widened(u[i]);
            if (value > largest || (value != value && largest == largest)) {
              best = i;
              largest = value;
            }
          }
          out[row] = best;
        }
      });
    });
  }

  void run(KernelContext& ctx, const kernels::Argsort& call) override {
    visit_number(call.x.dtype, "argsort", [&](auto zero) {
      using T = decltype(zero);
      const std::int64_t k = call.x.shape[1], grain = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(k, 1));
      parallel_for(ctx, call.x.shape[0], grain,
                   [&, in = call.x.as<T>(), out = call.y.as<std::int64_t>()](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const T* u = in + row * k;
                       std::int64_t* const first = out + row * k;
                       std::iota(first, first + k, 0);
                       std::stable_sort(first, first + k, [&](std::int64_t i, std::int64_t j) {
                         return kernels::Argsort::precedes(call.descending, cpu::widened(u[i]), cpu::widened(u[j]));
                       });
                     }
                   });
    });
  }

  void run(KernelContext& ctx, const kernels::TreeSum& call) override {
    check(std::ranges::any_of(call.leaves, [](const View& leaf) { return static_cast<bool>(leaf); }),
          "tree_sum: all {} leaves are missing", call.leaves.size());
    call.out.dtype == DType::f64 ? tree_sum_as<double>(ctx, call.leaves, call.out)
                                 : tree_sum_as<float>(ctx, call.leaves, call.out);
  }

  void run(KernelContext& ctx, const kernels::SquaredNorm& call) override {
    std::vector<View> xs;
    for (std::size_t i = 0; i < call.xs.size(); ++i) {
      if (!call.omits(i)) xs.push_back(call.xs[i]);
    }
    std::int64_t blocks = 0;
    for (const View& x : xs) blocks += cpu::sum_blocks(x.numel());
    auto* sums = static_cast<double*>(ctx.scratch.get(blocks * sizeof(double)));
    double* next = sums;
    for (const View& x : xs) {
      cpu::visit_floating(x.dtype, "squared_norm", [&](auto zero) {
        cpu::block_sums(ctx, x.numel(), next, [in = x.as<decltype(zero)>()](std::int64_t i) {
          double value = cpu::widened(in[i]);
          return value * value;
        });
      });
      next += cpu::sum_blocks(x.numel());
    }
    *call.y.as<double>() = cpu::tree_total(sums, blocks);
  }
};

}  // namespace

std::unique_ptr<ReduceKernels> make_cpu_reduce() { return std::make_unique<Reduce>(); }

}  // namespace lockstep
