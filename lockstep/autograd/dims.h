// The axes that a function works on, as users name them.
//
//   sum(x, 1), sum(x, {0, -1}), sum(x, {})  // one axis, two, all
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// One or several axes. Negative numbers count from the end. An empty list means all axes.
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
