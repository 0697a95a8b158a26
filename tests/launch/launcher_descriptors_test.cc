#include <gtest/gtest.h>
#include <sys/syscall.h>

#include "lockstep/launch/launcher.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

int launch_true() {
  return launch({.command = {"/bin/true"}, .nproc_per_node = 2, .output = [](bool, std::string_view) {}}).status;
}

TEST(LauncherDescriptors, AreClosedWithoutCloseRange) {
  const int status = status_of_process([] { return forbid(SYS_close_range) ? launch_true() : kNoFilter; });
  if (status == kNoFilter) GTEST_SKIP() << "no filter of system calls";
  EXPECT_EQ(status, 0);
}

TEST(LauncherDescriptors, LimitIsRaised) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(64, 500);
              const int status = launch_true();
              return soft_limit() == 500 ? status : 1;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
