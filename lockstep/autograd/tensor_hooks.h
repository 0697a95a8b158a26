// Internal: the hooks on the gradient of one result or leaf, and the gradient that retain_grad() keeps.
//
//   const auto remove = register_hook(y, [](const Tensor& gradient) { return gradient * 2; });
#pragma once

#include <functional>
#include <map>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/outline.h"

namespace lockstep {

struct TensorHooks {
  explicit TensorHooks(const Tensor& x) : outline(x) {}
  // Passes the complete gradient of one pass through the hooks, and keeps it if retain_grad() was called.
  void run(Gradient& gradient, const BackwardPass& pass);

  Outline outline;
  std::map<int, std::function<Tensor(const Tensor&)>> all;  // by number, in the order of registration
  int next = 0;
  bool retains = false;
  Tensor retained;  // the sum over passes
};

// From now on, backward() also leaves the gradient of a result in grad(), as it does for leaves. Throws for a tensor
// that requires no gradient.
void retain_grad(const Tensor& x);
// Calls hook(gradient) in each backward pass, once the gradient of this result or leaf is complete. An undefined result
// of the hook keeps the gradient; a defined result, of the same shape, type, and placement, replaces it. Hooks run in
// the order of registration, in the thread of backward(). Returns a function that removes the hook. For parameters, use
// Parameter::register_hook().
std::function<void()> register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> hook);

}  // namespace lockstep
