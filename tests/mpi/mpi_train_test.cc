// A job that mpirun starts trains to the same weights as one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/tool.h"

namespace lockstep {
namespace {

TEST(Mpi, ProcessesEndWithTheWeightsOfOne) {
  const SmallData data;
  const TemporaryFolder folder;
  const auto weights = [&](const ToolOptions& options, const Arguments& more) {
    const std::string log = folder / "log";
    Arguments arguments = train_arguments(data, {"--log", log});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolResult result = run_tool(arguments, options);
    EXPECT_EQ(result.status, 0) << result.err;
    const auto end = events(log, "end");
    return end.size() == 1 ? end[0].at("weights_sha256").get<std::string>() : "none";
  };
  const std::string alone = weights({}, {});
  // MPI makes a process that mpirun did not start a job of its own.
  ToolOptions single;
  single.environment.push_back("HOME=" + std::string(folder / "."));
  single.environment.push_back("ASAN_OPTIONS=detect_leaks=0");
  const ToolResult lost = run_tool(train_arguments(data, {"--backend", "mpi"}), single);
  EXPECT_EQ(lost.status, 2) << lost.err;
  EXPECT_THAT(lost.err, ::testing::HasSubstr("--backend mpi: found a process that is alone, expected ranks"));
  for (const char* ranks : {"1", "2", "4"}) {
    // As it looks to ranks of several hosts: to MPI alone it does not matter where they are.
    const std::string hosts =
        "export OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0; unset MASTER_ADDR; "
        "exec \"$@\"";
    ToolOptions mpirun;
    mpirun.environment.push_back("HOME=" + std::string(folder / "."));  // Open MPI 5 insists on one
    mpirun.environment.push_back("ASAN_OPTIONS=detect_leaks=0");        // what MPI never frees is not ours to find
    mpirun.before = {LOCKSTEP_MPIRUN,
                     "--allow-run-as-root",
                     "--oversubscribe",
                     "--bind-to",
                     "none",
                     "-n",
                     ranks,
                     "/bin/sh",
                     "-c",
                     hosts,
                     "sh"};
    EXPECT_EQ(weights(mpirun, {"--backend", "mpi", "--num-devices", "1"}), alone) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace lockstep
