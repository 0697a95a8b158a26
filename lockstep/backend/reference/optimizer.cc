#include <algorithm>
#include <cmath>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls update(lr, step, gradient, weight, states) for every element.
template <typename Rule, typename F>
void for_each_element(const kernels::Update<Rule>& call, const F& update) {
  const double factor = call.scale ? Elements(call.scale)[0] : 1,
               lr = call.rate ? Elements(call.rate)[0] : call.rule.lr;
  for (const Update<View>& u : call.updates) {
    if (u.present && Elements(u.present)[0] == 0) continue;
    const std::int64_t step = Rule::kCountsSteps ? ++*u.steps.template as<std::int64_t>() : 0;
    for (std::int64_t i = 0; factor >= 0 && i < u.weight.numel(); ++i) {
      double w = Elements(u.weight)[i], states[3] = {};
      for (std::size_t k = 0; k < 3; ++k) states[k] = u.states[k] ? Elements(u.states[k])[i] : 0;
      update(lr, step, factor * Elements(u.grad)[i], w, states);
      Elements(u.weight).set(i, w);
      for (std::size_t k = 0; k < 3; ++k) {
        if (u.states[k]) Elements(u.states[k]).set(i, states[k]);
      }
    }
  }
}

class Optimizer final : public OptimizerKernels {
 public:
  void run(KernelContext&, const kernels::Update<SgdRule>& call) override {
    const SgdRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t, double g, double& w, double* states) {
      g += rule.weight_decay * w;
      double m = g;
      if (rule.momentum != 0) m = states[0] = rule.momentum * states[0] + g;
      w -= lr * (rule.nesterov ? g + rule.momentum * m : m);
    });
  }

  void run(KernelContext&, const kernels::Update<AdamRule>& call) override {
    const AdamRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t step, double g, double& w, double* states) {
      if (rule.decoupled_weight_decay) {
        w -= lr * rule.weight_decay * w;
      } else {
        g += rule.weight_decay * w;
      }
      double& m = states[0] = rule.beta1 * states[0] + (1 - rule.beta1) * g;
      double& v = states[1] = rule.beta2 * states[1] + (1 - rule.beta2) * g * g;
      if (rule.amsgrad) states[2] = std::max(states[2], v);
      const double first = 1 - std::pow(rule.beta1, step), second = 1 - std::pow(rule.beta2, step);
      w -= lr * (m / first) / (std::sqrt((rule.amsgrad ? states[2] : v) / second) + rule.eps);
    });
  }

  void run(KernelContext&, const kernels::Update<RMSpropRule>& call) override {
    const RMSpropRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t, double g, double& w, double* states) {
      g += rule.weight_decay * w;
      double variance = states[0] = rule.alpha * states[0] + (1 - rule.alpha) * g * g;
      if (rule.centered) {
        double& mean = states[1] = rule.alpha * states[1] + (1 - rule.alpha) * g;
        variance -= mean * mean;
      }
      double step = g / (std::sqrt(variance) + rule.eps);
      if (rule.momentum != 0) {
        double& buffer = states[rule.centered ? 2 : 1];
        step = buffer = rule.momentum * buffer + step;
      }
      w -= lr * step;
    });
  }

  void run(KernelContext&, const kernels::Update<DampenedSgdRule>& call) override {
    const DampenedSgdRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t step, double g, double& w, double* states) {
      g += rule.weight_decay * w;
      states[0] = rule.momentum * states[0] + (step == 1 ? 1 : 1 - rule.dampening) * g;
      w -= lr * states[0];
    });
  }

  void run(KernelContext&, const kernels::Update<AdagradRule>& call) override {
    const AdagradRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t step, double g, double& w, double* states) {
      g += rule.weight_decay * w;
      states[0] += g * g;
      w -= lr / (1 + static_cast<double>(step - 1) * rule.lr_decay) * g / (std::sqrt(states[0]) + rule.eps);
    });
  }

  void run(KernelContext&, const kernels::Update<AdadeltaRule>& call) override {
    const AdadeltaRule& rule = call.rule;
    for_each_element(call, [&](double lr, std::int64_t, double g, double& w, double* states) {
      g += rule.weight_decay * w;
      states[0] = rule.rho * states[0] + (1 - rule.rho) * g * g;
      const double step = g * std::sqrt((states[1] + rule.eps) / (states[0] + rule.eps));
      states[1] = rule.rho * states[1] + (1 - rule.rho) * step * step;
      w -= lr * step;
    });
  }

  void run(KernelContext&, const kernels::ClipScale& call) override {
    double factor = call.max_norm / (std::sqrt(Elements(call.squared_norm)[0]) + 1e-6);
    Elements(call.scale).set(0, factor > 1 ? 1 : factor);  // NaN stays NaN
  }

  void run(KernelContext&, const kernels::LossScale& call) override {
    Elements numbers(call.state);
    const double squared = Elements(call.squared_norm)[0], scale = numbers[0], good = numbers[1] + 1;
    if (std::isfinite(squared)) {
      const double clipped = call.args.max_norm > 0 ? call.args.max_norm / (std::sqrt(squared) / scale + 1e-6) : 1;
      Elements(call.factor).set(0, (clipped > 1 ? 1 : clipped) / scale);
      const bool grows = good >= static_cast<double>(call.args.growth_interval);
      if (grows && scale < LossScaleArgs::kMost) numbers.set(0, scale * 2);
      numbers.set(1, grows ? 0 : good);
    } else {
      Elements(call.factor).set(0, -1);
      if (scale > LossScaleArgs::kLeast) numbers.set(0, scale / 2);
      numbers.set(1, 0);
    }
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer() { return std::make_unique<Optimizer>(); }

}  // namespace lockstep::reference
