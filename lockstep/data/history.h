// Internal: refuses examples with a history, because a batch is a copy, which would lose it.
#pragma once

#include <string_view>
#include <utility>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Throws for a tensor that requires gradients. The error names it by `what` with `args`.
template <typename... Args>
void check_no_history(const Tensor& t, fmt::format_string<Args...> what, Args&&... args) {
  if (!t.defined() || !t.requires_grad()) return;
  fail("{} requires gradients, which a batch does not carry on: expected data without a history, as of detach()",
       fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace lockstep
