#include "lockstep/autograd/forward_trace.h"

namespace lockstep {
namespace {

thread_local ForwardTrace* current_trace = nullptr;

}  // namespace

ForwardTrace::ForwardTrace() : outer_(std::exchange(current_trace, this)) {}
ForwardTrace::~ForwardTrace() { current_trace = outer_; }
ForwardTrace* ForwardTrace::current() { return current_trace; }

TracePause::TracePause() : paused_(std::exchange(current_trace, nullptr)) {}
TracePause::~TracePause() { current_trace = paused_; }

}  // namespace lockstep
