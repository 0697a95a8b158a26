// Internal: stub.
#pragma once
#include <vector>
#include "lockstep/device/device.h"
#include "lockstep/base/error.h"
namespace LOCKSTEP_API lockstep {
inline std::vector<Device> devices() { fail("no default devices"); }
}
