#include "lockstep/engine/hidden.h"
#include "lockstep/engine/public.h"
#include "lockstep/engine/second.h"
