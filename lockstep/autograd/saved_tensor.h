// A tensor that a backward function needs. It is the memory of forward, not a copy of it: a change in place between
// forward and backward would make the gradient wrong, so it is an error.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

class SavedTensor {
 public:
  SavedTensor() = default;
  // Without a history, as it is now. To be made after the forward operation has been described.
  SavedTensor(const Tensor& t)  // NOLINT(google-explicit-constructor)
      : tensor_(t.detach()), version_(version()) {}
  // Nothing where `needed` is false: no input has a gradient that would be computed from it.
  SavedTensor(bool needed, const Tensor& t) : SavedTensor(needed ? t : Tensor()) {}

  // Undefined if that was saved. Throws Error, naming the operation, where the tensor has been written since.
  const Tensor& get(std::string_view operation) const {
    if (version() != version_) [[unlikely]] {
      fail("{}: a tensor needed for its gradient was changed in place after forward: version {}, expected {}", operation,
           version(), version_);
    }
    return tensor_;
  }

 private:
  std::uint64_t version() const {
    return tensor_.defined() ? tensor_.storage()->version.load(std::memory_order_relaxed) : 0;
  }

  Tensor tensor_;
  std::uint64_t version_ = 0;
};

}  // namespace lockstep
