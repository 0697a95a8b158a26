// Runs a command that trains, and reads what its Trainers write for `lockstep bisect`: see train/step_watch.h.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/child_process.h"

namespace lockstep::app {

class WatchedRun {
 public:
  // The lines of one Trainer of one rank.
  struct Lines {
    nlohmann::json start;  // rank, ranks, shards, recipe
    std::deque<nlohmann::json> events;
    std::int64_t read = 0;  // bytes of the file
  };
  using Place = std::pair<std::int64_t, std::int64_t>;  // trainer, rank

  // Starts the command. `label` is "A" or "B". Makes the folder.
  WatchedRun(std::string label, std::vector<std::string> command, std::filesystem::path folder,
             const nlohmann::json& request);

  // Reads what the command has written since the last call.
  void poll();
  // Throws if the command has failed, with the last line of its output.
  void check_success() const;
  // True only after all that the command wrote has been read.
  bool ended() const { return exit_.has_value(); }
  // Kills the command and all processes that it started.
  void stop();

  const std::string& label() const { return label_; }
  std::map<Place, Lines>& files() { return files_; }
  // Returns whether all ranks of this Trainer have begun.
  bool complete(std::int64_t trainer) const;
  // Throws an error: the command ended without what was expected.
  [[noreturn]] void fail_without(const std::string& expected) const;

 private:
  void read(const std::filesystem::path& file);
  std::string last_words() const;

  std::string label_;
  std::vector<std::string> command_;
  std::filesystem::path folder_;
  ChildProcesses child_{true};
  std::optional<ChildExit> exit_;
  bool stopped_ = false;
  std::map<Place, Lines> files_;
};

// Two commands that run at the same time.
class WatchedPair {
 public:
  // `flip` is a request for B only; null: none.
  WatchedPair(const std::vector<std::string>& a, const std::vector<std::string>& b, const std::filesystem::path& folder,
              const nlohmann::json& request, const nlohmann::json& flip);

  std::vector<std::unique_ptr<WatchedRun>>& all() { return runs_; }
  WatchedRun& a() { return *runs_[0]; }
  WatchedRun& b() { return *runs_[1]; }
  // Reads until done() returns true or both commands have ended. Then kills what still runs. Throws if a command fails.
  void read_until(const std::function<bool()>& done);

 private:
  std::vector<std::unique_ptr<WatchedRun>> runs_;
};

}  // namespace lockstep::app
