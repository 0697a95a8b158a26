// For code that needs no gradients, such as an evaluation: operations then keep nothing for backward().
//
//   NoGradGuard no_grad;
//   Tensor logits = net(images);
#pragma once

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// Disables gradient recording on this thread for the lifetime of the object (torch.no_grad()).
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};
bool grad_enabled();

}  // namespace lockstep
