#include "lockstep/backend/optimizer.h"

#include <cmath>

#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

template <typename T>
void sgd_item(const KernelContext& ctx, const SgdArgs& args, const UpdateItem& item, double factor) {
  const T scale = static_cast<T>(factor), lr = static_cast<T>(current_rate(args)),
          decay = static_cast<T>(args.weight_decay);
  const T momentum = static_cast<T>(args.momentum);
  T* w = item.weight.as<T>();
  const T* grad = item.grad.as<T>();
  if (!item.state0) {
    cpu::parallel_vector_loop(ctx, item.weight.numel(),
                              [=](std::int64_t i) { w[i] -= lr * (scale * grad[i] + decay * w[i]); });
    return;
  }
  T* m = item.state0.as<T>();
  auto update = [&](auto nesterov) {
    cpu::parallel_vector_loop(ctx, item.weight.numel(), [=](std::int64_t i) {
      T g = scale * grad[i] + decay * w[i];
      T velocity = momentum * m[i] + g;
      m[i] = velocity;
      w[i] -= lr * (nesterov ? g + momentum * velocity : velocity);
    });
  };
  args.nesterov ? update(std::true_type{}) : update(std::false_type{});
}

template <typename T>
void adam_item(const KernelContext& ctx, const AdamArgs& args, const UpdateItem& item, std::int64_t step,
               double factor) {
  const double lr = current_rate(args);
  const BiasCorrections corrections = bias_corrections(args.beta1, args.beta2, step);
  const T scale = static_cast<T>(factor), eps = static_cast<T>(args.eps);
  const T keep1 = static_cast<T>(args.beta1), take1 = static_cast<T>(1 - args.beta1);
  const T keep2 = static_cast<T>(args.beta2), take2 = static_cast<T>(1 - args.beta2);
  const T rate = static_cast<T>(lr / corrections.first);
  const T correction2 = static_cast<T>(1 / corrections.second);
  // Decay acts through the gradient or directly, never both.
  const T l2 = static_cast<T>(args.decoupled ? 0 : args.weight_decay);
  const T shrink = static_cast<T>(args.decoupled ? 1 - lr * args.weight_decay : 1);
  cpu::parallel_vector_loop(ctx, item.weight.numel(),
                            [=, w = item.weight.as<T>(), grad = item.grad.as<T>(), moment1 = item.state0.as<T>(),
                             moment2 = item.state1.as<T>()](std::int64_t i) {
                              T g = scale * grad[i] + l2 * w[i];
                              T m = keep1 * moment1[i] + take1 * g;
                              T v = keep2 * moment2[i] + take2 * g * g;
                              moment1[i] = m;
                              moment2[i] = v;
                              w[i] = shrink * w[i] - rate * m / (std::sqrt(v * correction2) + eps);
                            });
}

class Optimizer final : public OptimizerKernels {
 public:
  void sgd(KernelContext& ctx, const SgdArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    const double factor = scale ? *scale.as<double>() : 1;
    if (factor < 0) return;
    for (const UpdateItem& item : items) {
      if (item.skipped()) continue;
      item.weight.dtype == DType::f64 ? sgd_item<double>(ctx, args, item, factor)
                                      : sgd_item<float>(ctx, args, item, factor);
    }
  }

  void adam(KernelContext& ctx, const AdamArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    const double factor = scale ? *scale.as<double>() : 1;
    for (const UpdateItem& item : items) {
      if (item.skipped()) continue;
      const std::int64_t step = item.count_step();
      if (factor < 0) continue;
      item.weight.dtype == DType::f64 ? adam_item<double>(ctx, args, item, step, factor)
                                      : adam_item<float>(ctx, args, item, step, factor);
    }
  }

  void clip_scale(KernelContext&, double max_norm, const View& squared_norm, const View& scale) override {
    const double factor = max_norm / (std::sqrt(*squared_norm.as<double>()) + 1e-6);
    *scale.as<double>() = factor > 1 ? 1 : factor;  // NaN stays NaN
  }

  void loss_scale(KernelContext& ctx, const LossScaleArgs& args, const View& squared_norm, const View& state,
                  const View& factor) override {
    reference_->loss_scale(ctx, args, squared_norm, state, factor);
  }

 private:
  std::unique_ptr<OptimizerKernels> reference_ = reference::make_optimizer();
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_cpu_optimizer() { return std::make_unique<Optimizer>(); }

}  // namespace lockstep
