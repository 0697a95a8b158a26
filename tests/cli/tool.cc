#include "tests/cli/tool.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "lockstep/base/random.h"
#include "tests/data/idx_files.h"

namespace lockstep {
namespace {

void write_part(const TemporaryFolder& folder, const std::string& prefix, int count, std::uint64_t seed) {
  const RandomKey key = random_key(seed, {});
  std::string images = idx_header({static_cast<std::uint32_t>(count), 28, 28});
  std::string labels = idx_header({static_cast<std::uint32_t>(count)});
  for (int i = 0; i < count; ++i) {
    labels.push_back(static_cast<char>(i % 10));
    for (int p = 0; p < 28 * 28; ++p) {
      const std::uint32_t noise = random_bits(key, static_cast<std::uint64_t>(i * 28 * 28 + p)) % 64;
      const bool bright = p / 28 / 3 == i % 10;  // each class has its own bar
      images.push_back(static_cast<char>(noise + (bright ? 180 : 0)));
    }
  }
  folder.write(prefix + "-images-idx3-ubyte.gz", gzip(images));
  folder.write(prefix + "-labels-idx1-ubyte", labels);
}

}  // namespace

Tool::Tool(const Arguments& arguments, ToolOptions options) {
  if (options.out.empty()) options.out = folder_ / "out";
  std::vector<std::string> words = options.before;
  const char* other_build = std::getenv("LOCKSTEP_TOOL");
  words.emplace_back(other_build != nullptr ? other_build : LOCKSTEP_TOOL);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& variable : options.environment) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  for (const int fd : {1, 2}) {
    const std::string file = fd == 1 ? options.out : (folder_ / "err").string();
    posix_spawn_file_actions_addopen(&files, fd, file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  const int error = ::posix_spawn(&process_, words[0].c_str(), &files, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error(words[0] + ": " + std::strerror(error));
}

Tool::~Tool() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void Tool::send(int signal) { ::kill(process_, signal); }

ToolResult Tool::wait() {
  using namespace std::chrono_literals;
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(LOCKSTEP_TEST_TIMEOUT / 3);
  while (::waitpid(process_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) ::kill(process_, SIGKILL);
    std::this_thread::sleep_for(2ms);
  }
  process_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), folder_.read("out"), folder_.read("err")};
}

ToolResult run_tool(const Arguments& arguments, ToolOptions options) {
  return Tool(arguments, std::move(options)).wait();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

SmallData::SmallData(std::uint64_t seed) {
  write_part(folder_, "train", kTrain, seed);
  write_part(folder_, "t10k", kTest, seed + 1);
}

Arguments train_arguments(const SmallData& data, const Arguments& more) {
  Arguments all{"train",    "--data", data.path(),           "--model", "mlp", "--epochs", "2", "--batch-size", "32",
                "--shards", "4",      "--threads-per-shard", "1"};
  for (std::size_t i = 0; i < more.size(); ++i) {
    // Options may be given once: the later one counts.
    const auto known = std::find(all.begin(), all.end(), more[i]);
    if (more[i].starts_with("--") && known != all.end()) all.erase(known, known + 2);
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<nlohmann::json> read_log(const std::filesystem::path& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line) && !file.eof();) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<nlohmann::json> events(const std::filesystem::path& path, const std::string& kind) {
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& line : read_log(path)) {
    if (line.at("event") == kind) found.push_back(line);
  }
  return found;
}

}  // namespace lockstep
