#include "lockstep/backend/softmax.h"

#include <algorithm>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/lanes.h"
#include "lockstep/backend/cpu/vector_math.h"
#include "lockstep/backend/reference/families.h"
#include "lockstep/base/plain_math.h"

namespace lockstep {
namespace {

// Values common to a row: softmax(x)[i] = exp(x[i] - max) / sum.
struct RowStats {
  float max;
  float sum;
};

template <typename T>
RowStats row_stats(const T* x, std::int64_t k) {
  float max = cpu::lane_max(k, [=](std::int64_t i) { return static_cast<float>(x[i]); });
  auto term = [=](std::int64_t i) { return cpu::fast_exp(static_cast<float>(x[i]) - max); };
  return {max, static_cast<float>(cpu::lane_sum(k, term))};
}

// Not the C library's logarithm, whose last bits differ between libraries. The sum is at least 1, of the largest
// element, or NaN.
double log_of_sum(const RowStats& stats) { return stats.sum >= 1 ? plain_log(stats.sum) : stats.sum; }

// Calls f(row, offset of its first element), vectorized, on the threads of the lane.
template <typename F>
void for_each_row(const KernelContext& ctx, std::int64_t rows, std::int64_t k, const F& f) {
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(k, 1));
  parallel_for(ctx, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::vectorized([&] {
      for (std::int64_t row = begin; row < end; ++row) f(row, row * k);
    });
  });
}

template <typename F>
void for_each_row(const KernelContext& ctx, const View& x, const F& f) {
  const std::int64_t k = x.shape[-1];
  for_each_row(ctx, k > 0 ? x.numel() / k : 0, k, f);
}

// Returns the number of samples that are ignored.
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
float counted_factor(const View& sums) { return 1 + sums.as<float>()[1] / sums.as<float>()[2]; }

class Softmax final : public SoftmaxKernels {
 public:
  void softmax(KernelContext& ctx, const View& x, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->softmax(ctx, x, y);
    cpu::visit_narrow(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(ctx, x, [k = x.shape[-1], in = x.as<T>(), out = y.as<T>()](std::int64_t, std::int64_t at) {
        if constexpr (std::is_same_v<T, float>) {
          // y holds the exponentials until their sum is known, so each is computed once.
          const float max = cpu::lane_max(k, [=](std::int64_t i) { return in[at + i]; });
          cpu::vector_loop(at, at + k, [=](std::int64_t i) { out[i] = cpu::fast_exp(in[i] - max); });
          const auto sum = static_cast<float>(cpu::lane_sum(k, [=](std::int64_t i) { return out[at + i]; }));
          cpu::vector_loop(at, at + k, [=, scale = 1.f / sum](std::int64_t i) { out[i] = scale * out[i]; });
          return;
        }
        const RowStats stats = row_stats(in + at, k);
        const float scale = 1.f / stats.sum;
        cpu::vector_loop(at, at + k, [=](std::int64_t i) {
          out[i] = static_cast<T>(scale * cpu::fast_exp(static_cast<float>(in[i]) - stats.max));
        });
      });
    });
  }

  void softmax_backward(KernelContext& ctx, const View& y, const View& dy, const View& dx) override {
    if (!cpu::is_narrow(y.dtype)) return reference_->softmax_backward(ctx, y, dy, dx);
    cpu::visit_narrow(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(
          ctx, y, [k = y.shape[-1], p = y.as<T>(), g = dy.as<T>(), out = dx.as<T>()](std::int64_t, std::int64_t at) {
            const auto dot = static_cast<float>(cpu::lane_sum(
                k, [=](std::int64_t i) { return static_cast<float>(p[at + i]) * static_cast<float>(g[at + i]); }));
            cpu::vector_loop(at, at + k, [=](std::int64_t i) {
              out[i] = static_cast<T>(static_cast<float>(p[i]) * (static_cast<float>(g[i]) - dot));
            });
          });
    });
  }

  void log_softmax(KernelContext& ctx, const View& x, const View& y) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->log_softmax(ctx, x, y);
    cpu::visit_narrow(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(ctx, x, [k = x.shape[-1], in = x.as<T>(), out = y.as<T>()](std::int64_t, std::int64_t at) {
        const RowStats stats = row_stats(in + at, k);
        const auto log_sum = static_cast<float>(log_of_sum(stats));
        cpu::vector_loop(at, at + k, [=](std::int64_t i) {
          out[i] = static_cast<T>((static_cast<float>(in[i]) - stats.max) - log_sum);
        });
      });
    });
  }

  void log_softmax_backward(KernelContext& ctx, const View& y, const View& dy, const View& dx) override {
    if (!cpu::is_narrow(y.dtype)) return reference_->log_softmax_backward(ctx, y, dy, dx);
    cpu::visit_narrow(y.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(
          ctx, y,
          [k = y.shape[-1], log_p = y.as<T>(), g = dy.as<T>(), out = dx.as<T>()](std::int64_t, std::int64_t at) {
            const auto sum =
                static_cast<float>(cpu::lane_sum(k, [=](std::int64_t i) { return static_cast<float>(g[at + i]); }));
            cpu::vector_loop(at, at + k, [=](std::int64_t i) {
              out[i] = static_cast<T>(static_cast<float>(g[i]) - cpu::fast_exp(static_cast<float>(log_p[i])) * sum);
            });
          });
    });
  }

  void cross_entropy(KernelContext& ctx, const View& logits, const View& labels, const LabelRules& rules,
                     const View& sums) override {
    if (!cpu::is_narrow(logits.dtype)) return reference_->cross_entropy(ctx, logits, labels, rules, sums);
    const std::int64_t samples = logits.shape[0], classes = logits.shape[1];
    const std::int64_t ignored = check_labels(labels, classes, rules);
    const double smoothing = rules.smoothing;
    auto* losses = static_cast<double*>(ctx.scratch.get(samples * sizeof(double)));
    cpu::visit_narrow(logits.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(ctx, logits,
                   [=, x = logits.as<T>(), label = labels.as<std::int64_t>()](std::int64_t n, std::int64_t at) {
                     if (rules.ignores(label[n])) {
                       losses[n] = 0;
                       return;
                     }
                     const RowStats stats = row_stats(x + at, classes);
                     auto below_max = [=](std::int64_t k) { return static_cast<float>(x[at + k]) - stats.max; };
                     // sum_k q_k (x_k - max). Without smoothing, a logit of -inf adds nothing.
                     double score = (1 - smoothing) * below_max(label[n]);
                     if (smoothing != 0) {
                       score += smoothing / static_cast<double>(classes) * cpu::lane_sum(classes, below_max);
                     }
                     losses[n] = log_of_sum(stats) - score;
                   });
    });
    const auto all = static_cast<double>(std::max<std::int64_t>(samples, 1));
    auto* out = sums.as<float>();
    out[0] = static_cast<float>(samples > 0 ? cpu::tree_total(losses, samples) / all : 0);
    out[1] = static_cast<float>(static_cast<double>(ignored) / all);
    out[2] = static_cast<float>(static_cast<double>(samples - ignored) / all);
  }

  void cross_entropy_mean(KernelContext& ctx, const View& sums, const View& loss) override {
    if (!cpu::is_narrow(sums.dtype)) return reference_->cross_entropy_mean(ctx, sums, loss);
    *loss.as<float>() = *sums.as<float>() * counted_factor(sums);
  }

  void cross_entropy_backward(KernelContext& ctx, const View& logits, const View& labels, const LabelRules& rules,
                              const View& sums, const View& dloss, const View& dlogits) override {
    if (!cpu::is_narrow(logits.dtype)) {
      return reference_->cross_entropy_backward(ctx, logits, labels, rules, sums, dloss, dlogits);
    }
    const std::int64_t samples = logits.shape[0], classes = logits.shape[1];
    check_labels(labels, classes, rules);
    if (samples == 0) return;
    const double smoothing = rules.smoothing;
    const float scale = *dloss.as<float>() / static_cast<float>(samples) * counted_factor(sums);
    const auto others = static_cast<float>(smoothing / static_cast<double>(classes));
    const auto hit = static_cast<float>(1 - smoothing);
    cpu::visit_narrow(logits.dtype, [&](auto zero) {
      using T = decltype(zero);
      for_each_row(ctx, logits,
                   [=, x = logits.as<T>(), out = dlogits.as<T>(), label = labels.as<std::int64_t>()](std::int64_t n,
                                                                                                     std::int64_t at) {
                     if (rules.ignores(label[n])) {
                       std::fill_n(out + at, classes, T());
                       return;
                     }
                     const RowStats stats = row_stats(x + at, classes);
                     const float inverse = 1.f / stats.sum;
                     const std::int64_t target = at + label[n];
                     cpu::vector_loop(at, at + classes, [=](std::int64_t i) {
                       float p = inverse * cpu::fast_exp(static_cast<float>(x[i]) - stats.max);
                       float q = others + (i == target ? hit : 0.f);
                       out[i] = static_cast<T>(scale * (p - q));
                     });
                   });
    });
  }

  void mse(KernelContext& ctx, const View& x, const View& target, const View& loss) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->mse(ctx, x, target, loss);
    const std::int64_t count = x.numel(), blocks = cpu::sum_blocks(count);
    auto* sums = static_cast<double*>(ctx.scratch.get(blocks * sizeof(double)));
    cpu::visit_narrow(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      cpu::block_sums(ctx, count, sums, [u = x.as<T>(), v = target.as<T>()](std::int64_t i) {
        float difference = static_cast<float>(u[i]) - static_cast<float>(v[i]);
        return difference * difference;
      });
    });
    const double mean = count > 0 ? cpu::tree_total(sums, blocks) / static_cast<double>(count) : 0;
    *loss.as<float>() = static_cast<float>(mean);
  }

  void mse_backward(KernelContext& ctx, const View& x, const View& target, const View& dloss, const View& dx) override {
    if (!cpu::is_narrow(x.dtype)) return reference_->mse_backward(ctx, x, target, dloss, dx);
    if (x.numel() == 0) return;
    const auto scale = static_cast<float>(2.0 * *dloss.as<float>() / static_cast<double>(x.numel()));
    cpu::visit_narrow(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      cpu::parallel_vector_loop(
          ctx, x.numel(), [=, u = x.as<T>(), v = target.as<T>(), out = dx.as<T>()](std::int64_t i) {
            out[i] = static_cast<T>(scale * (static_cast<float>(u[i]) - static_cast<float>(v[i])));
          });
    });
  }

 private:
  std::unique_ptr<SoftmaxKernels> reference_ = reference::make_softmax();
};

}  // namespace

std::unique_ptr<SoftmaxKernels> make_cpu_softmax() { return std::make_unique<Softmax>(); }

}  // namespace lockstep
