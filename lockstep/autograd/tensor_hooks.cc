#include "lockstep/autograd/tensor_hooks.h"

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/elementwise.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

std::uint64_t writes(const Tensor& x) {
  std::uint64_t sum = 0;
  for (const Array& part : x->parts) sum += part.storage()->written();
  return sum;
}

TensorHooks& hooks_of(std::string_view what, const Tensor& x) {
  check(x.requires_grad(), "{}: {} requires no gradient", what, x);
  check(x->label.empty(), "{}: {} is a parameter, expected Parameter::register_hook()", what, x->label);
  if (!x->grad->hooks) x->grad->hooks = std::make_shared<TensorHooks>(x);
  return *x->grad->hooks;
}

}  // namespace

void TensorHooks::run(Gradient& gradient, const BackwardPass& pass) {
  if (!gradient.defined() || (all.empty() && !retains)) return;
  // Other gradients may share the arrays, and hooks may write what they get.
  Tensor now = clone(as_tensor(gradient, outline, pass));
  bool changed = false;
  const auto hooks = all;  // one of them may remove itself
  for (const auto& [number, hook] : hooks) {
    const std::uint64_t before = writes(now);
    const Tensor found = hook(now);
    changed = changed || found.defined() || writes(now) != before;
    if (!found.defined()) continue;
    if (!outline.fits(found)) {
      fail("register_hook: the hook returned {}, expected {}", Outline(found).str(), outline.str());
    }
    now = found.detach();
  }
  if (retains) retained = retained.defined() ? retained + now : clone(now);
  if (!changed) return;
  gradient = {};
  add_tensor(gradient, now, outline);
}

void retain_grad(const Tensor& x) {
  if (x.requires_grad() && !x->grad->node) return;
  hooks_of("retain_grad", x).retains = true;
}

std::function<void()> register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> hook) {
  check(hook != nullptr, "register_hook: {}: no function", x);
  if (CheckpointScope::repeats_without(x)) return [] {};  // the first call of the function has registered it
  TensorHooks& hooks = hooks_of("register_hook", x);
  const int number = hooks.next++;
  hooks.all[number] = std::move(hook);
  return [of = std::weak_ptr(x->grad->hooks), number] {
    if (const auto known = of.lock()) known->all.erase(number);
  };
}

}  // namespace lockstep
