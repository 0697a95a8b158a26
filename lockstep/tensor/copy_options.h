// Options of a copy between host memory and devices.
#pragma once

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct CopyOptions {
  // Returns before the copy is done. Later readers of the result wait for it: operations, and for host memory
  // to_vector(), item(), and wait(). Do not change the copied host memory until then. Copies between devices are always
  // asynchronous.
  bool non_blocking = false;
};

}  // namespace lockstep
