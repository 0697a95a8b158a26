// A tensor that a backward function needs. It shares the memory of the forward pass, so a change in place between forward
// and backward would make the gradient wrong: get() reports it as an error.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

class SavedTensor {
 public:
  SavedTensor() = default;
  // Saves t without its history. Call it after the forward operation has been described.
  SavedTensor(const Tensor& t)  // NOLINT(google-explicit-constructor)
      : tensor_(t.detach()), version_(version()) {}
  // Saves nothing if `needed` is false: then no gradient is computed from t.
  SavedTensor(bool needed, const Tensor& t) : SavedTensor(needed ? t : Tensor()) {}

  // Returns the tensor, undefined if an undefined one was saved. Throws Error, naming the operation, if the tensor has been
  // written since.
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
