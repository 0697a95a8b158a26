#include "apps/lockstep/bits/watched_run.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "apps/lockstep/output.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/checkpoint/json_input.h"

namespace lockstep::app {

namespace fs = std::filesystem;

WatchedRun::WatchedRun(std::string label, std::vector<std::string> command, fs::path folder,
                       const nlohmann::json& request)
    : label_(std::move(label)), command_(std::move(command)), folder_(std::move(folder)) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "request.json") << request.dump() << '\n';
  const FileDescriptor out(::open((folder_ / "output.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  check(out.get() >= 0, "cannot write in {}", folder_.string());
  const fs::path tool = own_program();
  ChildOptions child{.command = command_, .own_group = true};
  // Replaces `lockstep` with this tool; PATH does the same for `env NAME=VALUE lockstep ...`.
  if (child.command[0] == "lockstep") child.command[0] = tool.string();
  child.environment = {{"LOCKSTEP_BISECT", folder_.string()},
                       {"PATH", tool.parent_path().string() + ":" + environment("PATH").value_or("/usr/bin:/bin")}};
  child.out = child.err = out.get();
  try {
    child_.add(0, start_child(child));
  } catch (const Error& error) {
    fail("bisect: command {}: {}", label_, error.what());
  }
}

void WatchedRun::poll() {
  // Reaps before it reads, so that all output of a command that has ended is read.
  const std::vector<ChildExit> exits = child_.reap();
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().extension() == ".jsonl") read(entry.path());
  }
  if (!exits.empty()) exit_ = exits.front();
}

void WatchedRun::check_success() const {
  if (!exit_ || exit_->ok() || stopped_) return;
  fail("bisect: command {} ({}) {}{}", label_, fmt::join(command_, " "),
       exit_->by_signal() ? fmt::format("was ended by signal {}", exit_->exit_status() - 128)
                          : fmt::format("exited with status {}", exit_->exit_status()),
       last_words());
}

void WatchedRun::read(const fs::path& path) {
  // The name is rank-R.trainer-T.
  const std::string name = path.stem().string();
  const std::size_t middle = name.find(".trainer-");
  if (middle == std::string::npos) return;
  const Place place{std::atoll(name.c_str() + middle + 9), std::atoll(name.c_str() + 5)};
  std::ifstream file(path);
  auto found = files_.find(place);
  if (found != files_.end()) file.seekg(found->second.read);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    auto json = parse_json<nlohmann::json>(line);
    if (found == files_.end()) {
      found = files_.emplace(place, Lines{.start = std::move(json), .events = {}}).first;
    } else {
      found->second.events.push_back(std::move(json));
    }
    found->second.read += static_cast<std::int64_t>(line.size()) + 1;
  }
}

bool WatchedRun::complete(std::int64_t trainer) const {
  const auto first = files_.find({trainer, 0});
  if (first == files_.end()) return false;
  const std::int64_t ranks = first->second.start.at("ranks");
  for (std::int64_t rank = 1; rank < ranks; ++rank) {
    if (!files_.contains({trainer, rank})) return false;
  }
  return true;
}

void WatchedRun::stop() {
  stopped_ = true;
  child_.send(SIGKILL);
  while (child_.running()) {
    for (const ChildExit& exit : child_.reap()) exit_ = exit;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void WatchedRun::fail_without(const std::string& expected) const {
  fail("bisect: command {} ({}) ended without {}{}", label_, fmt::join(command_, " "), expected, last_words());
}

std::string WatchedRun::last_words() const {
  const std::string last = last_line(folder_ / "output.txt");
  return last.empty() ? ", and printed nothing" : ": " + last;
}

WatchedPair::WatchedPair(const std::vector<std::string>& a, const std::vector<std::string>& b, const fs::path& folder,
                         const nlohmann::json& request, const nlohmann::json& flip) {
  nlohmann::json of_b = request;
  if (!flip.is_null()) of_b["flip"] = flip;
  runs_.push_back(std::make_unique<WatchedRun>("A", a, folder / "a", request));
  runs_.push_back(std::make_unique<WatchedRun>("B", b, folder / "b", of_b));
}

void WatchedPair::read_until(const std::function<bool()>& done) {
  while (true) {
    for (auto& run : runs_) run->poll();
    if (done()) break;
    for (auto& run : runs_) run->check_success();
    if (a().ended() && b().ended()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (auto& run : runs_) run->stop();
}

}  // namespace lockstep::app
