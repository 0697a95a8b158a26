#include "lockstep/base/wrong.h"

namespace LOCKSTEP_API lockstep {}
