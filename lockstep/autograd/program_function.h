// Internal: a function of another language, for apply_function(): it has no C++ class of its own.
#pragma once

#include <string>

#include "lockstep/autograd/function.h"

namespace lockstep {

class ProgramFunction : public ErasedFunction {
 public:
  // For messages.
  virtual std::string name() const = 0;
  // Whether backward() gets zeros instead of an undefined gradient.
  virtual bool takes_zeros() const = 0;
  const std::type_info& type() const final { return typeid(*this); }
};

}  // namespace lockstep
