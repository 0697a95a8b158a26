// Internal: a batch is a copy of its examples, which would lose their history.
#pragma once

#include <string_view>
#include <utility>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Throws for a tensor that requires gradients. `what`, with `args`, names it.
template <typename... Args>
void check_no_history(const Tensor& t, fmt::format_string<Args...> what, Args&&... args) {
  if (!t.defined() || !t.requires_grad()) return;
  fail("{} requires gradients, which a batch does not carry on: expected data without a history, as of detach()",
       fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace lockstep
