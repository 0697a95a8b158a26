// Internal: how the ranks of a job find each other: rank and world size, the store, and the meeting of all ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// The fields mean the same as in ProcessGroupOptions.
struct RendezvousOptions {
  int rank = -1;
  int world_size = -1;
  std::shared_ptr<Store> store = {};
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds progress_timeout{0};
  // Build of this process; empty: build_id().
  std::string build = {};
};

struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  // Rank among the ranks of this host, and their number, if the launcher gives both; otherwise 0 and 1.
  int local_rank = 0;
  int local_world_size = 1;
  // Store of this group alone: its keys cannot collide with those of other groups or of earlier starts of the job.
  std::shared_ptr<Store> store;
  GroupTimeouts timeouts;
  // 32 bytes, equal on all ranks and new for each group. Peers authenticate each other with it (HMAC-SHA256). It is
  // derived from the job's secret and from a random number that only readers of the store know.
  std::string key;
  // The numeric address at which peers reach this host: its address on the route to the store. Loopback if all ranks
  // are on this host, or if the caller supplied the store.
  std::string address = "127.0.0.1";
};

// Returns on every rank when all ranks have joined. `options` override the environment (LaunchEnvironment). Throws if a
// variable has a bad value, the store is unreachable or refuses the secret, ranks do not join in time, a rank has
// another world size or another version of Lockstep than rank 0 (or than an earlier start of this job), or a rank
// number is taken.
Rendezvous resolve_rendezvous(const RendezvousOptions& options);

// Takes the timeouts from the options, else from the environment, else the defaults.
GroupTimeouts timeouts_of(const RendezvousOptions& options);

}  // namespace lockstep
