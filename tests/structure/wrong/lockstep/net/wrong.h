// The store. Who asks, gets.
#pragma once

#include "lockstep/base/wrong.h"
