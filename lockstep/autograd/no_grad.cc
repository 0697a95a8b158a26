#include "lockstep/autograd/no_grad.h"

#include "lockstep/autograd/grad_mode.h"

namespace lockstep {
namespace {

thread_local bool recording = true;

}  // namespace

NoGradGuard::NoGradGuard() : previous_(recording) { recording = false; }
NoGradGuard::~NoGradGuard() { recording = previous_; }
bool grad_enabled() { return recording; }
void set_grad_enabled(bool enabled) { recording = enabled; }

}  // namespace lockstep
