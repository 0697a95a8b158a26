#include "lockstep/ops/origin.h"

#include <utility>

namespace lockstep::ops {
namespace {

thread_local Origin current_origin;

}  // namespace

OriginScope::OriginScope(Origin origin) : previous_(std::exchange(current_origin, origin)) {}
OriginScope::~OriginScope() { current_origin = previous_; }
Origin OriginScope::current() { return current_origin; }

}  // namespace lockstep::ops
