// Internal: an array that a backward function needs. It shares the memory of the forward pass, so a change in place
// between forward and backward would make the gradient wrong: get() reports it as an error. For logical tensors, see
// SavedTensor in function.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/tensor/array.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {

class SavedArray {
 public:
  SavedArray() = default;
  // Saves x as it is now. Call it after the forward operation has been described.
  SavedArray(const Array& x) : array_(x), version_(version()) {}  // NOLINT(google-explicit-constructor)
  // Saves nothing if `needed` is false, because no gradient is then computed from x.
  SavedArray(bool needed, const Array& x) : SavedArray(needed ? x : Array()) {}

  // Saves x as it was at this version.
  SavedArray(const Array& x, std::uint64_t version) : array_(x), version_(version) {}

  // Returns the array, undefined if an undefined array was saved. Throws Error, naming the operation, if it has been
  // written since.
  const Array& get(std::string_view operation) const {
    if (version() != version_) [[unlikely]] {
      fail("{}: a tensor needed for its gradient was changed in place after forward: version {}, expected {}",
           operation, version(), version_);
    }
    return array_;
  }

 private:
  std::uint64_t version() const { return array_.defined() ? array_.storage()->written() : 0; }

  Array array_;
  std::uint64_t version_ = 0;
};

}  // namespace lockstep
