// The ranks of one group come together in a store. Every rank leaves a record there; rank 0 reads them all and says
// whether they are a job.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/net/store.h"

namespace lockstep {

struct MeetingOptions {
  int rank = 0;
  int world_size = 1;
  // This host's, numeric: by which it reaches the store.
  std::string address = "127.0.0.1";
  // The store goes with this process.
  bool holds_store = false;
  std::chrono::milliseconds timeout{60'000};
  // The time counts from here.
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

class Meeting {
 public:
  Meeting(std::shared_ptr<Store> store, MeetingOptions options);

  // Returns when all ranks have come: rank 0's random number. Throws CommError: which ranks did not come in time, that
  // one says another world size, or that two processes say the same rank.
  std::string meet();

  // After it: this group's part of the store. Groups of one store are told apart by how often a rank has come: its n-th
  // group is everyone's n-th.
  std::shared_ptr<Store> group_store() const { return make_prefix_store("group/", group_); }
  // The address at which the others reach this host.
  const std::string& address() const { return options_.address; }

 private:
  // Rank 0's word, or that of one who cannot be right: a number, of a world size or a lost rank; and what it is about.
  struct Verdict {
    bool go = false;
    int of = -1;
    std::string text;
    std::string str() const;
  };
  static Verdict parse_verdict(const std::string& text);

  std::int64_t number_of_group();
  Verdict decide();
  Verdict await_verdict();
  // Which ranks did not come, unless there is a verdict by now.
  Verdict verdict_on_missing();
  // Leaves it in the store.
  void announce(const Verdict& verdict);
  // Nothing when the time is over, or when there is a verdict.
  std::optional<std::string> await(const std::string& key);

  std::shared_ptr<Store> store_, group_;
  MeetingOptions options_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace lockstep
