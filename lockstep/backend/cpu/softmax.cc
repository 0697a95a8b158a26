#include "lockstep/backend/softmax.h"

#include <algorithm>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/base/plain_math.h"

namespace lockstep {
namespace {

using cpu::Computed;
using cpu::Math;

// Values common to a row: softmax(x)[i] = exp(x[i] - max) / sum.
template <typename C>
struct RowStats {
  C max, sum;
};

template <typename T>
RowStats<Computed<T>> row_stats(const T* x, std::int64_t k) {
  using C = Computed<T>;
  const C max = cpu::lane_max(k, [=](std::int64_t i) { return static_cast<C>(x[i]); });
  const auto term = [=](std::int64_t i) { return Math<C>::exp(static_cast<C>(x[i]) - max); };
  return {max, static_cast<C>(cpu::lane_sum(k, term))};
}

// Avoids the C library's logarithm, whose last bits differ between libraries. The sum is NaN or at least 1, because the
// largest element adds exp(0).
template <typename C>
double log_of_sum(const RowStats<C>& stats) {
  return stats.sum >= 1 ? plain_log(stats.sum) : stats.sum;
}

// Calls f(row, offset of its first element) for the rows of the last axis, vectorized, on the threads of the lane.
template <typename T, typename F>
void for_each_row(const KernelContext& ctx, const View& x, const F& f) {
  const std::int64_t k = x.shape[-1], rows = k > 0 ? x.numel() / k : 0;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(k, 1));
  parallel_for(ctx, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized_as<T>([&] {
      for (std::int64_t row = begin; row < end; ++row) f(row, row * k);
    });
  });
}

// Returns the number of ignored samples. Throws for an invalid label.
std::int64_t check_labels(const View& labels, std::int64_t classes, const LabelRules& rules) {
  const auto* label = labels.as<std::int64_t>();
  std::int64_t ignored = 0;
  for (std::int64_t n = 0; n < labels.numel(); ++n) {
    if (rules.ignores(label[n])) {
      ++ignored;
      continue;
    }
    check(label[n] >= 0 && label[n] < classes, "cross_entropy: label {} of sample {} is outside [0, {})", label[n],
          rules.first_sample + n, classes);
  }
  return ignored;
}

// The factor that turns the mean over all samples into the mean over the samples that count. It is exactly 1 if none is
// ignored.
template <typename C>
C counted_factor(const View& sums) {
  return 1 + sums.as<C>()[1] / sums.as<C>()[2];
}

class Softmax final : public SoftmaxKernels {
 public:
  void run(KernelContext& ctx, const kernels::Softmax& call) override {
    cpu::visit_floating(call.x.dtype, "softmax", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      for_each_row<T>(
          ctx, call.x,
          [k = call.x.shape[-1], in = call.x.as<T>(), out = call.y.as<T>()](std::int64_t, std::int64_t at) {
            if constexpr (std::is_same_v<T, C>) {
              // Compute each exponential once and keep it in y.
              const C max = cpu::lane_max(k, [=](std::int64_t i) { return in[at + i]; });
              cpu::vector_loop(at, at + k, [=](std::int64_t i) { out[i] = Math<C>::exp(in[i] - max); });
              const auto sum = static_cast<C>(cpu::lane_sum(k, [=](std::int64_t i) { return out[at + i]; }));
              cpu::vector_loop(at, at + k, [=, scale = 1 / sum](std::int64_t i) { out[i] = scale * out[i]; });
              return;
            }
            const auto stats = row_stats(in + at, k);
            const C scale = 1 / stats.sum;
            cpu::vector_loop(at, at + k, [=](std::int64_t i) {
              out[i] = static_cast<T>(scale * Math<C>::exp(static_cast<C>(in[i]) - stats.max));
            });
          });
    });
  }

  void run(KernelContext& ctx, const kernels::SoftmaxBackward& call) override {
    cpu::visit_floating(call.y.dtype, "softmax", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      for_each_row<T>(ctx, call.y,
                      [k = call.y.shape[-1], p = call.y.as<T>(), g = call.dy.as<T>(), out = call.dx.as<T>()](
                          std::int64_t, std::int64_t at) {
                        const auto dot = static_cast<C>(cpu::lane_sum(
                            k, [=](std::int64_t i) { return static_cast<C>(p[at + i]) * static_cast<C>(g[at + i]); }));
                        cpu::vector_loop(at, at + k, [=](std::int64_t i) {
                          out[i] = static_cast<T>(static_cast<C>(p[i]) * (static_cast<C>(g[i]) - dot));
                        });
                      });
    });
  }

  void run(KernelContext& ctx, const kernels::LogSoftmax& call) override {
    cpu::visit_floating(call.x.dtype, "softmax", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      for_each_row<T>(ctx, call.x,
                      [k = call.x.shape[-1], in = call.x.as<T>(), out = call.y.as<T>()](std::int64_t, std::int64_t at) {
                        const auto stats = row_stats(in + at, k);
                        const auto log_sum = static_cast<C>(log_of_sum(stats));
                        cpu::vector_loop(at, at + k, [=](std::int64_t i) {
                          out[i] = static_cast<T>((static_cast<C>(in[i]) - stats.max) - log_sum);
                        });
                      });
    });
  }

  void run(KernelContext& ctx, const kernels::LogSoftmaxBackward& call) override {
    cpu::visit_floating(call.y.dtype, "softmax", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      for_each_row<T>(ctx, call.y,
                      [k = call.y.shape[-1], log_p = call.y.as<T>(), g = call.dy.as<T>(), out = call.dx.as<T>()](
                          std::int64_t, std::int64_t at) {
                        const auto sum =
                            static_cast<C>(cpu::lane_sum(k, [=](std::int64_t i) { return static_cast<C>(g[at + i]); }));
                        cpu::vector_loop(at, at + k, [=](std::int64_t i) {
                          out[i] = static_cast<T>(static_cast<C>(g[i]) - Math<C>::exp(static_cast<C>(log_p[i])) * sum);
                        });
                      });
    });
  }

  void run(KernelContext& ctx, const kernels::CrossEntropy& call) override {
    const std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1];
    const std::int64_t ignored = check_labels(call.labels, classes, call.rules);
    const double smoothing = call.rules.smoothing;
    auto* losses = static_cast<double*>(ctx.scratch.get(samples * sizeof(double)));
    cpu::visit_floating(call.logits.dtype, "cross_entropy", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      for_each_row<T>(
          ctx, call.logits,
          [=, x = call.logits.as<T>(), label = call.labels.as<std::int64_t>()](std::int64_t n, std::int64_t at) {
            if (call.rules.ignores(label[n])) {
              losses[n] = 0;
              return;
            }
            const auto stats = row_stats(x + at, classes);
            auto below_max = [=](std::int64_t k) { return static_cast<C>(x[at + k]) - stats.max; };
            // sum_k q_k (x_k - max). Without smoothing, a logit of -inf adds nothing.
            double score = (1 - smoothing) * below_max(label[n]);
            if (smoothing != 0) {
              score += smoothing / static_cast<double>(classes) * cpu::lane_sum(classes, below_max);
            }
            losses[n] = log_of_sum(stats) - score;
          });
      const auto all = static_cast<double>(std::max<std::int64_t>(samples, 1));
      C* const out = call.sums.as<C>();
      out[0] = static_cast<C>(samples > 0 ? cpu::tree_total(losses, samples) / all : 0);
      out[1] = static_cast<C>(static_cast<double>(ignored) / all);
      out[2] = static_cast<C>(static_cast<double>(samples - ignored) / all);
    });
  }

  void run(KernelContext&, const kernels::CrossEntropyMean& call) override {
    cpu::visit_floating(call.sums.dtype, "cross_entropy", [&](auto zero) {
      using C = decltype(zero);
      if constexpr (std::is_same_v<C, Computed<C>>) {
        *call.loss.as<C>() = *call.sums.as<C>() * counted_factor<C>(call.sums);
      }
    });
  }

  void run(KernelContext& ctx, const kernels::CrossEntropyBackward& call) override {
    const std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1];
    check_labels(call.labels, classes, call.rules);
    if (samples == 0) return;
    const double smoothing = call.rules.smoothing;
    cpu::visit_floating(call.logits.dtype, "cross_entropy", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      const C scale = *call.dloss.as<C>() / static_cast<C>(samples) * counted_factor<C>(call.sums);
      const auto others = static_cast<C>(smoothing / static_cast<double>(classes));
      const auto hit = static_cast<C>(1 - smoothing);
      for_each_row<T>(ctx, call.logits,
                      [=, x = call.logits.as<T>(), out = call.dlogits.as<T>(), label = call.labels.as<std::int64_t>()](
                          std::int64_t n, std::int64_t at) {
                        if (call.rules.ignores(label[n])) {
                          std::fill_n(out + at, classes, T());
                          return;
                        }
                        const auto stats = row_stats(x + at, classes);
                        const C inverse = 1 / stats.sum;
                        const std::int64_t target = at + label[n];
                        cpu::vector_loop(at, at + classes, [=](std::int64_t i) {
                          C p = inverse * Math<C>::exp(static_cast<C>(x[i]) - stats.max);
                          C q = others + (i == target ? hit : C(0));
                          out[i] = static_cast<T>(scale * (p - q));
                        });
                      });
    });
  }

  void run(KernelContext& ctx, const kernels::Mse& call) override {
    const std::int64_t count = call.x.numel(), blocks = cpu::sum_blocks(count);
    auto* sums = static_cast<double*>(ctx.scratch.get(blocks * sizeof(double)));
    cpu::visit_floating(call.x.dtype, "mse", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      cpu::block_sums(ctx, count, sums, [u = call.x.as<T>(), v = call.target.as<T>()](std::int64_t i) {
        C difference = static_cast<C>(u[i]) - static_cast<C>(v[i]);
        return difference * difference;
      });
      const double mean = count > 0 ? cpu::tree_total(sums, blocks) / static_cast<double>(count) : 0;
      *call.loss.as<C>() = static_cast<C>(mean);
    });
  }

  void run(KernelContext& ctx, const kernels::MseBackward& call) override {
    if (call.x.numel() == 0) return;
    cpu::visit_floating(call.x.dtype, "mse_backward", [&](auto zero) {
      using T = decltype(zero);
      using C = Computed<T>;
      const auto scale = static_cast<C>(2.0 * *call.dloss.as<C>() / static_cast<double>(call.x.numel()));
      cpu::parallel_element_loop<T>(
          ctx, call.x.numel(), [=, u = call.x.as<T>(), v = call.target.as<T>(), out = call.dx.as<T>()](std::int64_t i) {
            out[i] = static_cast<T>(scale * (static_cast<C>(u[i]) - static_cast<C>(v[i])));
          });
    });
  }
};

}  // namespace

std::unique_ptr<SoftmaxKernels> make_cpu_softmax() { return std::make_unique<Softmax>(); }

}  // namespace lockstep
