// Invalid arguments.
#pragma once

#include "lockstep/base/error.h"

namespace lockstep::app {

// The tool ends with exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep::app
