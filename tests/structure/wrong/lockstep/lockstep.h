#include "lockstep/engine/hidden.h"
