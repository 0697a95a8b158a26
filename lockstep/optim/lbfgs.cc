#include "lockstep/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/autograd/functions.h"
#include "lockstep/base/in_use.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"

namespace lockstep {

// The loss at the point `length` along the direction from the start of a line search.
struct LBFGS::Point {
  double length = 0, loss = 0;
  Tensor gradient;   // of all parameters, one after the other
  double slope = 0;  // the gradient times the direction
};

namespace {

// Nocedal and Wright's conditions: the loss falls by kDecrease * length * slope, and the slope to kFlatter of its size.
constexpr double kDecrease = 1e-4, kFlatter = 0.9;
constexpr int kMostEvaluations = 25;
// Below this, the product of a move and the gradient's change along it says nothing about the curvature.
constexpr double kLeastCurvature = 1e-10;

double largest_of(const Tensor& x) { return x.numel() == 0 ? 0 : amax(abs(x)).item(); }

// Returns the minimum, between the bounds, of the cubic with these losses and slopes at two points.
template <typename Point>
double lowest_of_cubic(const Point& a, const Point& b, double least, double most) {
  const Point &left = a.length <= b.length ? a : b, &right = a.length <= b.length ? b : a;
  const double mean = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.length - right.length);
  const double square = mean * mean - left.slope * right.slope;
  if (!(square >= 0)) return (least + most) / 2;
  const double root = std::sqrt(square);
  const double place =
      right.length - (right.length - left.length) * (right.slope + root - mean) / (right.slope - left.slope + 2 * root);
  return std::min(std::max(place, least), most);
}

}  // namespace

LBFGS::LBFGS(std::vector<Parameter> parameters, LBFGSOptions options)
    : parameters_(std::move(parameters)), options_(options), use_(std::make_shared<InUse>()) {
  check(!parameters_.empty(), "lbfgs: no parameters");
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    check(std::ranges::find(parameters_, p) - parameters_.begin() == static_cast<std::ptrdiff_t>(i),
          "lbfgs: parameter {} is listed twice", p.name());
    check(p.dtype() == parameters_[0].dtype(), "lbfgs: parameter {} is {}, {} is {}, expected one type", p.name(),
          name(p.dtype()), parameters_[0].name(), name(parameters_[0].dtype()));
    claims_.push_back(p.claim());
  }
  for (const auto& [what, value] : {std::pair{"lr", options.lr},
                                    {"tolerance_grad", options.tolerance_grad},
                                    {"tolerance_change", options.tolerance_change}}) {
    check(std::isfinite(value) && value >= 0, "lbfgs: {} {}, expected at least 0", what, value);
  }
  for (const auto& [what, value] : {std::pair{"max_iter", options.max_iter},
                                    {"history_size", options.history_size},
                                    {"max_eval", options.max_eval.value_or(1)}}) {
    check(value >= 1, "lbfgs: {} {}, expected at least 1", what, value);
  }
}

void LBFGS::zero_grad() const {
  for (const Parameter& p : parameters_) p.zero_grad();
}

Tensor LBFGS::flat_weights() const {
  const Device device = parameters_[0].devices().at(0);
  std::vector<Tensor> parts;
  for (const Parameter& p : parameters_) parts.push_back(flatten(p.data(p.devices().at(0)).to(device)));
  // A copy, even if there is only one part.
  return clone(cat(parts));
}

void LBFGS::set_weights(const Tensor& flat) const {
  std::int64_t begin = 0;
  for (const Parameter& p : parameters_) {
    p.set_data(narrow(flat, 0, begin, p.shape().numel()).reshape(p.shape()));
    begin += p.shape().numel();
  }
}

// Evaluates the loss and its gradient at the present weights.
LBFGS::Point LBFGS::evaluate(const Closure& closure, State& state) {
  zero_grad();
  const Tensor loss = closure();
  check(loss.defined() && loss.numel() == 1, "lbfgs: the closure returned {}, expected the loss, one number", loss);
  ++state.evaluations;
  Point at;
  at.loss = loss.item();
  std::vector<Tensor> parts;
  for (const Parameter& p : parameters_) {
    check(p.initialized(), "lbfgs: a parameter has no values, expected that the closure calls its model");
    const Tensor gradient = p.gradient(p.devices().at(0));
    const Tensor part = gradient.defined() ? gradient : zeros_like(p.data(p.devices().at(0)));
    parts.push_back(flatten(part.to(parameters_[0].devices().at(0))));
  }
  at.gradient = clone(cat(parts));
  return at;
}

// Evaluates the loss and its gradient at `length` along the direction from `weights`.
LBFGS::Point LBFGS::evaluate(const Closure& closure, State& state, const Tensor& weights, double length) {
  const Tensor direction = state.direction;
  set_weights(weights + direction * length);
  Point at = evaluate(closure, state);
  at.length = length;
  at.slope = dot(at.gradient, direction).item();
  check(!std::isnan(at.loss), "lbfgs: the loss is nan after a step of {}, expected a number", length);
  return at;
}

// First extends the step until an interval contains a good length, then narrows the interval.
LBFGS::Point LBFGS::search(const Closure& closure, State& state, const Tensor& weights, const Point& from) {
  const auto try_length = [&](double length) { return evaluate(closure, state, weights, length); };
  const auto is_too_high = [&](const Point& p) { return p.loss > from.loss + kDecrease * p.length * from.slope; };
  const auto is_flat = [&](const Point& p) { return std::abs(p.slope) <= -kFlatter * from.slope; };
  Point before = from, at = try_length(state.length);
  int tries = 0;
  bool bracketed = false;
  while (tries < kMostEvaluations) {
    bracketed = is_too_high(at) || (tries > 1 && at.loss >= before.loss);
    if (bracketed) break;
    if (is_flat(at)) return at;
    bracketed = at.slope >= 0;
    if (bracketed) break;
    const double next = lowest_of_cubic(before, at, at.length + 0.01 * (at.length - before.length), 10 * at.length);
    before = std::exchange(at, try_length(next));
    ++tries;
  }
  if (!bracketed) before = from;
  Point low = before, high = at;
  if (high.loss < low.loss) std::swap(low, high);
  const double largest = largest_of(state.direction);
  bool stays_near_an_end = false;
  while (tries < kMostEvaluations && std::abs(high.length - low.length) * largest >= options_.tolerance_change) {
    const double least = std::min(low.length, high.length), most = std::max(low.length, high.length);
    double length = lowest_of_cubic(low, high, least, most);
    const double margin = 0.1 * (most - least);
    if (std::min(most - length, length - least) < margin) {
      if (stays_near_an_end || length >= most || length <= least) {
        length = most - length < length - least ? most - margin : least + margin;
        stays_near_an_end = false;
      } else {
        stays_near_an_end = true;
      }
    } else {
      stays_near_an_end = false;
    }
    at = try_length(length);
    ++tries;
    if (is_too_high(at) || at.loss >= low.loss) {
      high = at;
      if (high.loss < low.loss) std::swap(low, high);
      continue;
    }
    if (is_flat(at)) return at;
    if (at.slope * (high.length - low.length) >= 0) high = low;
    low = at;
  }
  return low;
}

// Chooses minus the gradient, times an estimate of the inverse Hessian.
void LBFGS::choose_direction(State& state, const Point& at) const {
  if (++state.directions == 1) {
    state.direction = -at.gradient;
    state.scale = ones_like(narrow(at.gradient, 0, 0, 1));
    return;
  }
  const Tensor change = at.gradient - state.gradient, move = state.direction * state.length;
  const Tensor curvature = dot(change, move);
  if (curvature.item() > kLeastCurvature) {
    if (std::ssize(state.changes) == options_.history_size) {
      for (auto* list : {&state.changes, &state.moves, &state.factors}) list->erase(list->begin());
    }
    state.changes.push_back(change);
    state.moves.push_back(move);
    state.factors.push_back(1.0 / curvature);
    state.scale = curvature / dot(change, change);
  }
  std::vector<Tensor> weights(state.changes.size());
  Tensor d = -at.gradient;
  for (std::size_t i = weights.size(); i-- > 0;) {
    weights[i] = dot(state.moves[i], d) * state.factors[i];
    d = d - state.changes[i] * weights[i];
  }
  d = d * state.scale;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    d = d + state.moves[i] * (weights[i] - dot(state.changes[i], d) * state.factors[i]);
  }
  state.direction = d;
}

void LBFGS::iterate(const Closure& closure, State& state, Point at) {
  const bool searches = options_.line_search == LineSearch::strong_wolfe;
  const std::int64_t most_evaluations = state.evaluations - 1 + options_.max_eval.value_or(options_.max_iter * 5 / 4);
  const auto is_optimal = [&] {
    const double largest = largest_of(at.gradient);
    check(std::isfinite(largest), "lbfgs: the largest gradient is {}, expected a finite number", largest);
    return largest <= options_.tolerance_grad;
  };
  if (is_optimal()) return;
  for (int i = 1;; ++i) {
    choose_direction(state, at);
    state.gradient = at.gradient;
    const double before = at.loss;
    const double first = state.directions == 1 ? std::min(1.0, 1 / sum(abs(at.gradient)).item()) : 1;
    state.length = first * options_.lr;
    at.length = 0;
    at.slope = dot(at.gradient, state.direction).item();
    if (at.slope > -options_.tolerance_change) return;
    const Tensor weights = flat_weights();
    if (searches) {
      at = search(closure, state, weights, at);
      check(std::isfinite(at.loss), "lbfgs: the loss is {} after a line search, expected a finite number", at.loss);
      state.length = at.length;
    }
    set_weights(weights + state.direction * state.length);
    if (i == options_.max_iter) return;
    if (!searches) {
      at = evaluate(closure, state);
      check(std::isfinite(at.loss), "lbfgs: the loss is {} after a step of {}, expected a finite number", at.loss,
            state.length);
    }
    if (is_optimal() || state.evaluations >= most_evaluations) return;
    if (largest_of(state.direction) * state.length <= options_.tolerance_change) return;
    if (std::abs(at.loss - before) < options_.tolerance_change) return;
  }
}

Tensor LBFGS::step(const Closure& closure) {
  const InUse::Scope use(*use_, "step: the optimizer");
  State state = state_;
  Tensor first, weights;
  const Closure keeps_first = [&] {
    const Tensor loss = closure();
    if (!first.defined() && loss.defined()) first = loss.detach();
    return loss;
  };
  try {
    const Point at = evaluate(keeps_first, state);
    check(std::isfinite(at.loss), "lbfgs: the loss is {}, expected a finite number", at.loss);
    weights = flat_weights();
    iterate(keeps_first, state, at);
  } catch (...) {
    if (weights.defined()) set_weights(weights);
    zero_grad();
    throw;
  }
  zero_grad();
  state_ = std::move(state);
  // Later draws have the keys of the next step.
  std::set<RandomState*> draws;
  for (const Parameter& p : parameters_) {
    for (Device device : p.devices()) draws.insert(state_of(device, "lbfgs").random().get());
  }
  for (RandomState* each : draws) each->add_steps(1);
  return first;
}

}  // namespace lockstep
