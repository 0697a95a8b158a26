// A job of which not all ranks can start.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/spawn.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The first ranks would wait for those that are missing.
TEST(Spawn, ARankThatCannotStartEndsTheOthers) {
  std::string program = "launch_test", filter = "--gtest_filter=Spawn.ARankThatCannotStartEndsTheOthers";
  char* argv[] = {program.data(), filter.data(), nullptr};
  const auto spawn_ranks = [&] { spawn(2, argv, [](int) { std::this_thread::sleep_for(1h); }, {.nprocs = 50}); };
  // The new process gets here, too.
  if (std::getenv("LOCKSTEP_SPAWNED")) spawn_ranks();
  EXPECT_EQ(status_of_process([&] {
              // The store needs two, each rank leaves one open, and its start takes four for a moment.
              const FileDescriptor next(::dup(2));
              const auto limit = static_cast<rlim_t>(next.get() + 10);
              limit_descriptors(limit, limit);
              try {
                spawn_ranks();
                return 1;
              } catch (const Error& error) {
                return std::string(error.what()).find("Too many open files") == std::string::npos ? 2 : 0;
              }
            }),
            0);
}

}  // namespace
}  // namespace lockstep
