// L-BFGS, for small problems whose loss is a smooth function of the whole data.
//
//   LBFGS lbfgs(net.parameters(), {.line_search = LineSearch::strong_wolfe});
//   for (int i = 0; i < 10; ++i) {
//     lbfgs.step([&] {
//       Tensor loss = mse_loss(net(x), y);
//       loss.backward();
//       return loss;
//     });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {

class InUse;  // base/in_use.h

// none: steps of length lr. strong_wolfe: a step that decreases the loss enough and flattens its slope (Nocedal and
// Wright 2006, algorithms 3.5 and 3.6).
enum class LineSearch : std::uint8_t { none, strong_wolfe };

struct LBFGSOptions {
  double lr = 1;
  int max_iter = 20;                 // new directions in a step
  std::optional<int> max_eval = {};  // loss evaluations after which a step takes no new direction; none: 5/4 max_iter
  double tolerance_grad = 1e-7;      // ends where no gradient is larger
  double tolerance_change = 1e-9;    // ends where neither a parameter nor the loss changes more
  int history_size = 100;            // changes of the gradient that are kept
  LineSearch line_search = LineSearch::none;
};

// torch.optim.LBFGS (Liu and Nocedal 1989). A step evaluates the loss at several weights and waits for each. Gradients
// are sums over all shards and processes, and vectors are computed on the first device, so the weights have the same
// bits on any number of devices; every process must call step(). LBFGS is not an Optimizer: it has one group, and no
// state for checkpoints. A new LBFGS begins with an empty history.
class LBFGS {
 public:
  // Computes the loss, one number, calls its backward(), and returns it. The gradients are cleared before.
  using Closure = std::function<Tensor()>;

  // Throws for an empty list, a parameter listed twice, parameters of different types, and options out of range.
  explicit LBFGS(std::vector<Parameter> parameters, LBFGSOptions options = {});
  // No copies: they would share the claim on the parameters.
  LBFGS(LBFGS&&) = default;
  LBFGS& operator=(LBFGS&&) = default;

  // Returns the loss before the step. Clears the gradients at the end. If the closure throws, or the loss or a gradient
  // is not a finite number, it throws, and weights and history are as before.
  Tensor step(const Closure& closure);
  void zero_grad() const;
  // Number of evaluations of the loss, in all steps that did not throw.
  std::int64_t evaluations() const { return state_.evaluations; }

 private:
  struct Point;
  struct State {
    std::int64_t directions = 0, evaluations = 0;
    Tensor direction, gradient;  // the latest direction, and the gradient where it was chosen
    double length = 0;
    std::vector<Tensor> changes, moves, factors;  // of the gradient, of the weights, and 1 / (change * move)
    Tensor scale;
  };
  Point evaluate(const Closure& closure, State& state);
  Point evaluate(const Closure& closure, State& state, const Tensor& weights, double length);
  Point search(const Closure& closure, State& state, const Tensor& weights, const Point& from);
  void choose_direction(State& state, const Point& at) const;
  void iterate(const Closure& closure, State& state, Point at);
  Tensor flat_weights() const;
  void set_weights(const Tensor& flat) const;

  std::vector<Parameter> parameters_;
  LBFGSOptions options_;
  State state_;
  std::vector<std::shared_ptr<void>> claims_;
  std::shared_ptr<InUse> use_;
};

}  // namespace lockstep
