#include "lockstep/base/wrong.h"
