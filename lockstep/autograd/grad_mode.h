// Whether gradients are recorded, as a mode that stays: torch.set_grad_enabled(). no_grad.h has the guard of a scope.
//
//   set_grad_enabled(is_training);
#pragma once

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// Sets the mode of this thread, until a NoGradGuard that was made earlier ends. grad_enabled() of no_grad.h reads it.
void set_grad_enabled(bool enabled);

}  // namespace lockstep
