#include "lockstep/base/spin.h"

namespace lockstep {

SpinPolicy*& SpinPolicy::of_thread() {
  thread_local SpinPolicy* policy = nullptr;
  return policy;
}

}  // namespace lockstep
