// Internal: the memory of a tensor, for code that reads it itself.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lockstep/autograd/tensor_impl.h"

namespace lockstep {

// Waits until the elements are written: a copy to the host may still be in flight. Throws if x is not in plain host
// memory; `what` begins the message.
inline std::span<const std::byte> host_bytes(std::string_view what, const Tensor& x) {
  check(x.defined() && x.device().is_host() && x.layout() == Layout::plain, "{}: {}, expected plain host memory", what,
        x);
  x.wait();
  return {static_cast<const std::byte*>(x->view().data), x->view().bytes()};
}

}  // namespace lockstep
