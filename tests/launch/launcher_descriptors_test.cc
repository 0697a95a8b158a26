#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <string>
#include <string_view>

#include "lockstep/launch/launcher.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

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

// Two ranks open 40 connections to the store of a launcher that may have 32 descriptors.
TEST(LauncherDescriptors, AStoreThatNeedsMoreIsReportedAndGoesOn) {
  const TemporaryFolder folder;
  const std::string script = fmt::format(
      "echo ready; until [ -e {0}/go ]; do sleep 0.02; done; all=;"
      "for i in $(seq 20); do exec {{one}}<>/dev/tcp/127.0.0.1/$MASTER_PORT; all=\"$all $one\"; done;"
      "until [ -e {0}/reported ]; do sleep 0.02; done;"
      "for one in $all; do exec {{one}}>&-; done;"
      "exec {{one}}<>/dev/tcp/127.0.0.1/$MASTER_PORT; head -c 16 <&$one; echo",
      folder.path().string());
  EXPECT_EQ(status_of_process([&] {
              limit_descriptors(32, 32);
              int reports = 0, greetings = 0;
              LauncherOptions options{.command = {"/bin/bash", "-c", script}, .nproc_per_node = 2};
              options.output = [&](bool, std::string_view line) {
                const auto has = [line](std::string_view part) { return line.find(part) != line.npos; };
                // A folder needs no descriptor.
                if (has("ready")) ::mkdir((folder / "go").c_str(), 0700);
                if (has("the store cannot accept all ranks: Too many open files (limit 32)")) {
                  ++reports;
                  ::mkdir((folder / "reported").c_str(), 0700);
                }
                greetings += has("lockstep store 2");
              };
              const int status = launch(options).status;
              return reports != 1 ? 1 : greetings != 2 ? 2 : status;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
