// Internal: how the ranks of a job find each other: this process's rank, the store, and the meeting of all ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// As ProcessGroupOptions.
struct RendezvousOptions {
  int rank = -1;
  int world_size = -1;
  std::shared_ptr<Store> store = {};
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds progress_timeout{0};
  // Empty: this library's.
  std::string build = {};
};

struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  // Among the ranks of this host, if the launcher says so; otherwise 0 of 1.
  int local_rank = 0;
  int local_world_size = 1;
  // For this group alone: its keys cannot collide with those of other groups or of earlier starts of the job.
  std::shared_ptr<Store> store;
  GroupTimeouts timeouts;
  // 32 bytes, equal on all ranks and new for each group. Peers prove themselves with it (HMAC-SHA256). It is derived
  // from the job's secret, or without one, from a random number that only readers of the store know.
  std::string key;
  // The numeric address at which peers reach this host: its address on the route to the store. Loopback if all ranks
  // are on this host, or if the caller supplied the store.
  std::string address = "127.0.0.1";
};

// Returns on every rank when all have joined. `options` override the environment (LaunchEnvironment). Throws if a
// variable has a bad value, the store is unreachable or refuses the secret, ranks do not join in time, a rank has
// another world size or another version of Lockstep than rank 0 (or than an earlier start of this job), or a rank
// number is taken.
Rendezvous resolve_rendezvous(const RendezvousOptions& options);

// From the options, else from the environment, else the defaults.
GroupTimeouts timeouts_of(const RendezvousOptions& options);

}  // namespace lockstep
