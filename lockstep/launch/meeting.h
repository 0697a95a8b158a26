// Internal: the ranks of a group meet in a store. Every rank writes a record; rank 0 reads all records and decides
// whether the ranks form a job.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/net/store.h"

namespace lockstep {

// `0.1.0/1`: the version and the kernel revision of this library.
std::string build_id();
// `Lockstep 0.1.0 (kernel revision 1)`, for errors.
std::string describe_build(const std::string& id);

struct MeetingOptions {
  int rank = 0;
  int world_size = 1;
  // This host's numeric address on the route to the store.
  std::string address = "127.0.0.1";
  // Whether this process hosts the store.
  bool holds_store = false;
  // One word, equal on all ranks, because ranks of different builds may compute different bits.
  std::string build = build_id();
  std::chrono::milliseconds timeout{60'000};
  // The start of the timeout.
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

class Meeting {
 public:
  Meeting(std::shared_ptr<Store> store, MeetingOptions options);

  // Returns a random number of rank 0 when all ranks have joined. Throws CommError if ranks do not join in time, if a
  // rank has another world size or another build, or if two processes claim the same rank.
  std::string meet();

  // This group's part of the store, valid after meet(). The n-th group that a rank makes in a store is the same group
  // as the n-th group of every other rank.
  std::shared_ptr<Store> group_store() const { return make_prefix_store("group/", group_); }
  // The address at which other ranks reach this host.
  const std::string& address() const { return options_.address; }

 private:
  // The decision of rank 0, or of a rank that detects an error: whether to continue, the world size or a lost rank, and
  // an explanation.
  struct Verdict {
    bool go = false;
    int of = -1;
    std::string text;
    std::string str() const;
  };
  static Verdict parse_verdict(const std::string& text);

  std::int64_t number_of_group();
  // The address of this host on the route to the ranks of other hosts.
  std::string address_for_others();
  Verdict decide();
  Verdict await_verdict();
  // Returns the verdict if it has arrived by now; otherwise one that lists the ranks that did not join.
  Verdict verdict_on_missing();
  // Writes the verdict to the store.
  void announce(const Verdict& verdict);
  // Waits until the key is set. Returns nothing if the time is over or a verdict has arrived.
  std::optional<std::string> await(const std::string& key);

  std::shared_ptr<Store> store_, group_;
  MeetingOptions options_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace lockstep
