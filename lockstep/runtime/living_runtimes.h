// Internal: the Runtimes that this process has.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "lockstep/runtime/random_state.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

// Lists `runtime` among the program's own Runtimes while it lives. Each has one, except the process's default Runtime.
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

// Returns the random state of draws that no device decides, such as those of host tensors: the thread's own, else that
// of the program's Runtime, else process_random(). Throws if the program has several Runtimes; `what` begins the error.
RandomState& current_random(std::string_view what);

// Returns the seed that loaders and samplers follow if their options name none: the thread's own, else that of the
// program's Runtimes, else that of process_random(). Throws if the Runtimes have different seeds; `what` begins the
// error. See docs/decisions/36-one-seed-by-default.md.
std::uint64_t default_seed(std::string_view what);

// Returns the seeding of what is made now: the thread's own, else that of the program's Runtime, else that of
// process_random(). Null if the program has several Runtimes: then the device decides.
std::shared_ptr<Seeding> current_seeding();

}  // namespace lockstep
