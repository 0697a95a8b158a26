// Internal: the Runtimes that this process has.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

// While it lives, `runtime` is one of the program's own. Each has one, except the process's (default_runtime.h).
class LivingRuntime {
 public:
  explicit LivingRuntime(Runtime& runtime);
  ~LivingRuntime();
  LivingRuntime(const LivingRuntime&) = delete;
  LivingRuntime& operator=(const LivingRuntime&) = delete;

 private:
  Runtime* runtime_;
};

// The random state of the process: that of default_runtime(), made or not, while the program has no Runtime of its own.
// Never destroyed.
const std::shared_ptr<RandomState>& process_random();

// The random state of draws that no device decides, such as those of host tensors: that of the program's Runtime, or
// process_random() if it has none. Throws if it has several; `what` names who asks.
RandomState& current_random(std::string_view what);

// The seed that loaders and samplers follow if their options name none: that of the program's Runtimes, or of
// process_random() if it has none. Throws if they have different seeds; `what` names who asks. See
// docs/decisions/36-one-seed-by-default.md.
std::uint64_t default_seed(std::string_view what);

// The seeding of what is made now: the thread's own, or that of the program's Runtime, or of process_random() if it has
// none. Null if it has several: then the device decides.
std::shared_ptr<Seeding> current_seeding();

}  // namespace lockstep
