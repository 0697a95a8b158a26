// Runs the tool as users do: as a separate process with files.
#pragma once

#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace lockstep {

struct ToolResult {
  int status = -1;  // 128 + the signal, if one ended it
  std::string out, err;
};

struct ToolOptions {
  std::string out;  // where standard output goes instead of ToolResult::out
  std::vector<std::string> environment = {"PATH=/usr/bin:/bin"};  // and nothing else
  std::vector<std::string> before = {};  // the program that starts it instead, and its arguments
};

using Arguments = std::vector<std::string>;

// A run of `lockstep ARGS...` with output to files in a separate folder. The environment does not affect its output.
class Tool {
 public:
  explicit Tool(const Arguments& arguments, ToolOptions options = {});
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  void send(int signal);
  pid_t process() const { return process_; }
  // Kills the process after a third of a test's time limit: 100 seconds, more under sanitizers.
  ToolResult wait();

 private:
  TemporaryFolder folder_;
  pid_t process_ = -1;
};

ToolResult run_tool(const Arguments& arguments, ToolOptions options = {});

std::vector<std::string> lines(const std::string& text);

// Ten classes of 28 x 28 images that a small net can tell apart, in the four files of Fashion-MNIST.
class SmallData {
 public:
  static constexpr int kTrain = 100, kTest = 30;
  explicit SmallData(std::uint64_t seed = 1);
  std::string path() const { return folder_.path().string(); }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

// `lockstep train` of a small net on `data` that takes well below a second; `more` may override.
Arguments train_arguments(const SmallData& data, const Arguments& more = {});

// The complete lines of a log.
std::vector<nlohmann::json> read_log(const std::filesystem::path& path);
// The log's lines of one kind.
std::vector<nlohmann::json> events(const std::filesystem::path& path, const std::string& kind);

}  // namespace lockstep
