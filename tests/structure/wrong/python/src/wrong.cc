#include "lockstep/base/wrong.h"
#include "lockstep/engine/public.h"
