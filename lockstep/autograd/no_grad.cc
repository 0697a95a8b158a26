#include "lockstep/autograd/no_grad.h"

namespace lockstep {
namespace {

thread_local bool recording = true;

}  // namespace

NoGradGuard::NoGradGuard() : previous_(recording) { recording = false; }
NoGradGuard::~NoGradGuard() { recording = previous_; }
bool grad_enabled() { return recording; }

}  // namespace lockstep
