#include "lockstep/ops/launch_observer.h"

#include <utility>

namespace lockstep::ops {
namespace {

thread_local LaunchObserver* current_observer = nullptr;

}  // namespace

LaunchObserver::LaunchObserver() : previous_(std::exchange(current_observer, this)) {}
LaunchObserver::~LaunchObserver() { current_observer = previous_; }
LaunchObserver* LaunchObserver::current() { return current_observer; }

ObserverPause::ObserverPause() : paused_(std::exchange(current_observer, nullptr)) {}
ObserverPause::~ObserverPause() { current_observer = paused_; }

}  // namespace lockstep::ops
