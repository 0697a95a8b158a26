// The axes of an operation, as users name them.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// One axis or several; negative ones count from the end. Empty: all axes.
class Dims {
 public:
  Dims() = default;
  Dims(int dim) : dims_{dim} {}                            // NOLINT(google-explicit-constructor)
  Dims(std::initializer_list<int> dims) : dims_(dims) {}   // NOLINT(google-explicit-constructor)
  Dims(std::vector<int> dims) : dims_(std::move(dims)) {}  // NOLINT(google-explicit-constructor)

  bool empty() const { return dims_.empty(); }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

 private:
  std::vector<int> dims_;
};

}  // namespace lockstep
