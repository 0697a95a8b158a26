// The version, where programs look for it.
//
//   static_assert(LOCKSTEP_VERSION_MAJOR == 0 && LOCKSTEP_VERSION_MINOR >= 1);
#pragma once

#include "lockstep/base/version.h"
