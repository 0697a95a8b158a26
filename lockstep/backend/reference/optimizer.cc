#include <cmath>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

class Optimizer final : public OptimizerKernels {
 public:
  void sgd(KernelContext&, const SgdArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    double factor = scale ? Elements(scale)[0] : 1;
    if (factor < 0) return;
    const double lr = current_rate(args);
    for (const UpdateItem& item : items) {
      if (item.skipped()) continue;
      Elements weight(item.weight), grad(item.grad), momentum(item.state0);
      for (std::int64_t i = 0; i < item.weight.numel(); ++i) {
        double w = weight[i];
        double g = factor * grad[i] + args.weight_decay * w;
        double m = g;
        if (item.state0) {
          m = args.momentum * momentum[i] + g;
          momentum.set(i, m);
        }
        weight.set(i, w - lr * (args.nesterov ? g + args.momentum * m : m));
      }
    }
  }

  void adam(KernelContext&, const AdamArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    double factor = scale ? Elements(scale)[0] : 1;
    const double lr = current_rate(args);
    for (const UpdateItem& item : items) {
      if (item.skipped()) continue;
      const BiasCorrections corrections = bias_corrections(args.beta1, args.beta2, item.count_step());
      if (factor < 0) continue;
      Elements weight(item.weight), grad(item.grad), moment1(item.state0), moment2(item.state1);
      for (std::int64_t i = 0; i < item.weight.numel(); ++i) {
        double w = weight[i];
        double g = factor * grad[i];
        if (args.decoupled) {
          w -= lr * args.weight_decay * w;
        } else {
          g += args.weight_decay * w;
        }
        double m = args.beta1 * moment1[i] + (1 - args.beta1) * g;
        double v = args.beta2 * moment2[i] + (1 - args.beta2) * g * g;
        moment1.set(i, m);
        moment2.set(i, v);
        weight.set(i, w - lr * (m / corrections.first) / (std::sqrt(v / corrections.second) + args.eps));
      }
    }
  }

  void clip_scale(KernelContext&, double max_norm, const View& squared_norm, const View& scale) override {
    double factor = max_norm / (std::sqrt(Elements(squared_norm)[0]) + 1e-6);
    Elements(scale).set(0, factor > 1 ? 1 : factor);  // NaN stays NaN
  }

  void loss_scale(KernelContext&, const LossScaleArgs& args, const View& squared_norm, const View& state,
                  const View& factor) override {
    Elements numbers(state);
    const double squared = Elements(squared_norm)[0], scale = numbers[0], good = numbers[1] + 1;
    if (std::isfinite(squared)) {
      const double clipped = args.max_norm > 0 ? args.max_norm / (std::sqrt(squared) / scale + 1e-6) : 1;
      Elements(factor).set(0, (clipped > 1 ? 1 : clipped) / scale);
      const bool grows = good >= static_cast<double>(args.growth_interval);
      if (grows && scale < LossScaleArgs::kMost) numbers.set(0, scale * 2);
      numbers.set(1, grows ? 0 : good);
    } else {
      Elements(factor).set(0, -1);
      if (scale > LossScaleArgs::kLeast) numbers.set(0, scale / 2);
      numbers.set(1, 0);
    }
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer() { return std::make_unique<Optimizer>(); }

}  // namespace lockstep::reference
