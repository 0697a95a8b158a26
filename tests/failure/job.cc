#include "tests/failure/job.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/environment_variable.h"
#include "tests/processes.h"
#include "tests/temporary_folder.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::set<std::string> entries(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) names.insert(entry.path().filename());
  return names;
}

// Processes whose command contains `mark`.
std::vector<std::string> processes(const std::string& mark) {
  std::vector<std::string> found;
  for (const std::string& name : entries("/proc")) {
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); })) continue;
    const std::string command = read_of_process("/proc/" + name + "/cmdline");
    if (command.find(mark) != std::string::npos) found.push_back("process " + name + ": " + command);
  }
  return found;
}

// Other programs use shared memory on this machine, too: the job's own would have its name.
std::vector<std::string> new_shared_memory(const std::set<std::string>& before) {
  std::vector<std::string> left;
  std::ranges::set_difference(entries("/dev/shm"), before, std::back_inserter(left));
  std::erase_if(left, [](const std::string& name) { return name.find("lockstep") == name.npos; });
  return left;
}

}  // namespace

JobEnd run_job(const JobOptions& options) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const EnvironmentVariable transport("LOCKSTEP_TRANSPORT", options.tcp ? "tcp" : nullptr);
  const std::set<std::string> shared_memory = entries("/dev/shm");

  LauncherOptions launcher{.nproc_per_node = options.ranks, .timeout = options.timeout, .grace = options.grace};
  // A shell around each rank reports how it ended.
  launcher.command = {"/bin/sh",
                      "-c",
                      "cd " + path + " && mkdir -p tmp && TMPDIR=tmp \"$@\"; s=$?; echo status $s; exit $s",
                      "sh",
                      LOCKSTEP_FAILING_RANK,
                      "--save",
                      path + "/save"};
  launcher.command.insert(launcher.command.end(), options.arguments.begin(), options.arguments.end());
  JobEnd end;
  end.ranks.resize(static_cast<std::size_t>(options.ranks));
  auto fault_time = Clock::now();
  launcher.output = [&](bool is_error, std::string_view line) {
    end.output += line;
    const std::string_view prefix = "[rank ";
    if (!line.starts_with(prefix)) return;
    RankEnd& rank = end.ranks.at(static_cast<std::size_t>(line[prefix.size()] - '0'));
    line.remove_prefix(prefix.size() + 3);
    line.remove_suffix(1);
    if (is_error) rank.errors.emplace_back(line);
    if (line == "fault") {
      end.fault_came = true;
      fault_time = Clock::now();
    }
    if (line.starts_with("status ")) {
      rank.status = std::stoi(std::string(line.substr(7)));
      rank.took = std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - fault_time);
    }
  };
  end.result = launch(launcher);
  end.output += end.result.message + "\n";
  end.left_behind = processes(path);
  for (const std::string& name : new_shared_memory(shared_memory)) end.left_behind.push_back("/dev/shm/" + name);
  std::set<std::string> files = entries(path);
  files.merge(entries(folder / "tmp"));
  for (const std::string& name : files) {
    if (name != "save" && name != "tmp") end.left_behind.push_back(name);
  }
  return end;
}

}  // namespace lockstep::testing
