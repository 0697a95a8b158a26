// Options of a copy between host memory and devices.
#pragma once

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct CopyOptions {
  // If true, the call returns before the copy is done. Later readers of the result wait for the copy: operations do,
  // and for host memory also to_vector(), item(), and wait(). Do not change the copied host memory until then. Copies
  // between devices are always asynchronous.
  bool non_blocking = false;
};

}  // namespace lockstep
