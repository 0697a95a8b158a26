#pragma once

#include "lockstep/base/wrong.h"
