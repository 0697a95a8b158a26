// The fault of a rank, and the moment when it occurs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

namespace lockstep::testing {

struct Fault {
  // "kill", "stop", "throw", "cut", or "busy" (for three seconds); empty: no fault.
  std::string kind;
  // "rendezvous", "broadcast", "backward", "reduce", "evaluation", or "checkpoint".
  std::string phase;
  // How often the phase is reached before the fault.
  int skip = 0;
  // Delay after that, so that the fault strikes at an arbitrary point.
  std::chrono::microseconds delay{0};
};

// The one fault of this process. Any thread may reach a phase.
class FaultInjector {
 public:
  explicit FaultInjector(Fault fault) : fault_(std::move(fault)), left_(fault_.skip) {}

  bool waits_for(const std::string& phase) const { return !fault_.kind.empty() && phase == fault_.phase; }
  // True if the thread that reaches the phase itself throws or is busy, so the fault cannot come from outside.
  bool strikes_in_place() const { return fault_.kind == "throw" || fault_.kind == "busy"; }
  // Call it when a phase is reached. Does not return for "kill", and throws for "throw". `settle` runs first and waits
  // until only this phase is in progress.
  void reach(const std::string& phase, const std::function<void()>& settle = {});

 private:
  const Fault fault_;
  std::atomic<int> left_;
};

}  // namespace lockstep::testing
