// Internal: the rules by which the library's optimizers update weights: their options and, as in formulas.h, formulas
// that the cpu and cuda back ends share. The reference back end has its own formulas, because it is the oracle.
//
// A rule has a name; the least and the most states that it keeps for each weight (the states in use come first and
// start as zeros); kCountsSteps, whether it needs the number of each parameter's own steps; and Step, which is made
// once for all elements of a parameter. T is the type of the computation: float or double. `lr` is the step's learning
// rate and `step` its number, from 1 (0 without kCountsSteps). A call of Step updates one weight w and its states by
// the gradient g.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "lockstep/base/plain_math.h"

namespace lockstep {

// torch.optim.SGD with dampening 0.
struct SgdRule {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;

  static constexpr std::string_view kName = "sgd";
  static constexpr int kLeastStates = 0, kMostStates = 1;  // the momentum buffer, unless momentum is 0
  static constexpr bool kCountsSteps = false;
  template <typename T>
  struct Step;
};

template <typename T>
struct SgdRule::Step {
  constexpr Step(const SgdRule& o, double lr, std::int64_t)
      : lr(static_cast<T>(lr)), momentum(static_cast<T>(o.momentum)), decay(static_cast<T>(o.weight_decay)),
        nesterov(o.nesterov), has_momentum(o.momentum != 0) {}
  constexpr void operator()(T& w, T g, T& m, T&, T&) const {
    g = g + decay * w;
    m = has_momentum ? momentum * m + g : g;
    w -= lr * (nesterov ? g + momentum * m : m);
  }

  T lr, momentum, decay;
  bool nesterov, has_momentum;
};

// torch.optim.SGD with dampening, which does not apply to the first gradient of a parameter.
struct DampenedSgdRule {
  double lr = 0.1;
  double momentum = 0.9;
  double dampening = 0;
  double weight_decay = 0;

  static constexpr std::string_view kName = "dampened sgd";
  static constexpr int kLeastStates = 1, kMostStates = 1;  // the momentum buffer
  static constexpr bool kCountsSteps = true;
  template <typename T>
  struct Step;
};

template <typename T>
struct DampenedSgdRule::Step {
  constexpr Step(const DampenedSgdRule& o, double lr, std::int64_t step)
      : lr(static_cast<T>(lr)), momentum(static_cast<T>(o.momentum)),
        take(static_cast<T>(step == 1 ? 1 : 1 - o.dampening)), decay(static_cast<T>(o.weight_decay)) {}
  constexpr void operator()(T& w, T g, T& m, T&, T&) const {
    g = g + decay * w;
    m = momentum * m + take * g;
    w -= lr * m;
  }

  T lr, momentum, take, decay;
};

// torch.optim.Adam. decoupled_weight_decay: AdamW, which decays the weights directly instead of through the gradient.
struct AdamRule {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool amsgrad = false;

  static constexpr std::string_view kName = "adam";
  static constexpr int kLeastStates = 2, kMostStates = 3;  // the moments and, with amsgrad, the largest second moment
  static constexpr bool kCountsSteps = true;
  template <typename T>
  struct Step;
};

template <typename T>
struct AdamRule::Step {
  constexpr Step(const AdamRule& o, double lr, std::int64_t step)
      : keep1(static_cast<T>(o.beta1)), take1(static_cast<T>(1 - o.beta1)), keep2(static_cast<T>(o.beta2)),
        take2(static_cast<T>(1 - o.beta2)), eps(static_cast<T>(o.eps)),
        rate(static_cast<T>(lr / (1 - plain_power(o.beta1, step)))),
        correction2(static_cast<T>(1 / (1 - plain_power(o.beta2, step)))),
        // Decay acts through the gradient or directly, never both.
        decay(static_cast<T>(o.decoupled_weight_decay ? 0 : o.weight_decay)),
        shrink(static_cast<T>(o.decoupled_weight_decay ? 1 - lr * o.weight_decay : 1)), amsgrad(o.amsgrad) {}
  constexpr void operator()(T& w, T g, T& m, T& v, T& most) const {
    g = g + decay * w;
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * g * g;
    most = v > most ? v : most;
    w = shrink * w - rate * m / (std::sqrt((amsgrad ? most : v) * correction2) + eps);
  }

  T keep1, take1, keep2, take2, eps, rate, correction2, decay, shrink;
  bool amsgrad;
};

// torch.optim.RMSprop.
struct RMSpropRule {
  double lr = 0.01;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  // Divides by an estimate of the gradient's standard deviation instead of its root mean square.
  bool centered = false;

  static constexpr std::string_view kName = "rmsprop";
  // The mean square, the mean if centered, and the momentum buffer unless momentum is 0.
  static constexpr int kLeastStates = 1, kMostStates = 3;
  static constexpr bool kCountsSteps = false;
  template <typename T>
  struct Step;
};

template <typename T>
struct RMSpropRule::Step {
  constexpr Step(const RMSpropRule& o, double lr, std::int64_t)
      : lr(static_cast<T>(lr)), keep(static_cast<T>(o.alpha)), take(static_cast<T>(1 - o.alpha)),
        eps(static_cast<T>(o.eps)), decay(static_cast<T>(o.weight_decay)), momentum(static_cast<T>(o.momentum)),
        centered(o.centered) {}
  constexpr void operator()(T& w, T g, T& square, T& second, T& third) const {
    g = g + decay * w;
    square = keep * square + take * g * g;
    const T mean = centered ? second + take * (g - second) : T(0);
    const T buffer = momentum * (centered ? third : second) + g / (std::sqrt(square - mean * mean) + eps);
    w -= lr * buffer;
    second = centered ? mean : buffer;
    third = buffer;
  }

  T lr, keep, take, eps, decay, momentum;
  bool centered;
};

// torch.optim.Adagrad.
struct AdagradRule {
  double lr = 0.01;
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;

  static constexpr std::string_view kName = "adagrad";
  static constexpr int kLeastStates = 1, kMostStates = 1;  // the sum of squares
  static constexpr bool kCountsSteps = true;
  template <typename T>
  struct Step;
};

template <typename T>
struct AdagradRule::Step {
  constexpr Step(const AdagradRule& o, double lr, std::int64_t step)
      : rate(static_cast<T>(lr / (1 + static_cast<double>(step - 1) * o.lr_decay))), eps(static_cast<T>(o.eps)),
        decay(static_cast<T>(o.weight_decay)) {}
  constexpr void operator()(T& w, T g, T& sum, T&, T&) const {
    g = g + decay * w;
    sum = sum + g * g;
    w -= rate * (g / (std::sqrt(sum) + eps));
  }

  T rate, eps, decay;
};

// torch.optim.Adadelta.
struct AdadeltaRule {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;

  static constexpr std::string_view kName = "adadelta";
  static constexpr int kLeastStates = 2, kMostStates = 2;  // the mean squares of gradients and of updates
  static constexpr bool kCountsSteps = false;
  template <typename T>
  struct Step;
};

template <typename T>
struct AdadeltaRule::Step {
  constexpr Step(const AdadeltaRule& o, double lr, std::int64_t)
      : lr(static_cast<T>(lr)), keep(static_cast<T>(o.rho)), take(static_cast<T>(1 - o.rho)),
        eps(static_cast<T>(o.eps)), decay(static_cast<T>(o.weight_decay)) {}
  constexpr void operator()(T& w, T g, T& square, T& moved, T&) const {
    g = g + decay * w;
    square = keep * square + take * g * g;
    const T step = std::sqrt(moved + eps) / std::sqrt(square + eps) * g;
    moved = keep * moved + take * step * step;
    w -= lr * step;
  }

  T lr, keep, take, eps, decay;
};

// All rules.
template <typename... Rules>
struct RuleList {};
using UpdateRules = RuleList<SgdRule, DampenedSgdRule, AdamRule, RMSpropRule, AdagradRule, AdadeltaRule>;

}  // namespace lockstep
