#include "lockstep/base/interruption.h"

#include <utility>

namespace lockstep {
namespace {

thread_local const std::function<void()>* interruption_check = nullptr;

}  // namespace

InterruptionScope::InterruptionScope(std::function<void()> check)
    : check_(std::move(check)), outer_(std::exchange(interruption_check, &check_)) {}
InterruptionScope::~InterruptionScope() { interruption_check = outer_; }

bool can_be_interrupted() { return interruption_check != nullptr; }
void check_interruption() {
  if (interruption_check) (*interruption_check)();
}

}  // namespace lockstep
