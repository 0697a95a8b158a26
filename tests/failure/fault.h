// What happens to a rank, and when.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

namespace lockstep::testing {

struct Fault {
  // "kill", "stop", "throw", "cut"; "busy": for three seconds; none if empty.
  std::string kind;
  // "rendezvous", "broadcast", "backward", "reduce", "evaluation", "checkpoint".
  std::string phase;
  // How often the phase is come by first.
  int skip = 0;
  // From then on: not at the same point any more, but at any.
  std::chrono::microseconds delay{0};
};

// The one fault of this process. Phases are come by on any thread.
class FaultInjector {
 public:
  explicit FaultInjector(Fault fault) : fault_(std::move(fault)), left_(fault_.skip) {}

  bool waits_for(const std::string& phase) const { return !fault_.kind.empty() && phase == fault_.phase; }
  // Not from outside: it is the thread that comes by which throws, or takes its time.
  bool strikes_in_place() const { return fault_.kind == "throw" || fault_.kind == "busy"; }
  // Called where a phase is come by. Does not return from "kill", and throws for "throw". `settle` runs first: it
  // waits until nothing but this phase is under way.
  void reach(const std::string& phase, const std::function<void()>& settle = {});

 private:
  const Fault fault_;
  std::atomic<int> left_;
};

}  // namespace lockstep::testing
