// Internal: parameters that no optimizer has.
#pragma once

#include <vector>

#include "lockstep/nn/module.h"

namespace lockstep {

// While a guard lives, the module's parameters that no optimizer has are frozen: their gradients would be unused.
class LeftOutGuard {
 public:
  explicit LeftOutGuard(const Module& module);
  ~LeftOutGuard();
  LeftOutGuard(const LeftOutGuard&) = delete;
  LeftOutGuard& operator=(const LeftOutGuard&) = delete;

 private:
  std::vector<Parameter> frozen_;
};

}  // namespace lockstep
