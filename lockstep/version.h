// The version, where programs look for it.
#pragma once

#include "lockstep/base/version.h"
