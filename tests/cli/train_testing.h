// Runs of `train` on small data, with a folder for their files.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/tool.h"
#include "tests/temporary_folder.h"

namespace lockstep {

class Train : public ::testing::Test {
 protected:
  ToolResult train(const Arguments& more) { return run_tool(train_arguments(data_, more)); }
  // The weights of a run that must succeed.
  std::string weights_of(const Arguments& more) {
    const std::filesystem::path log = folder_ / "weights.log";
    Arguments all = more;
    all.insert(all.end(), {"--log", log});
    const ToolResult result = train(all);
    EXPECT_EQ(result.status, 0) << result.err;
    const auto end = events(log, "end");
    return end.empty() ? "none" : end.back().at("weights_sha256").get<std::string>();
  }
  SmallData data_;
  TemporaryFolder folder_;
};

}  // namespace lockstep
