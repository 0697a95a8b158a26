// How the ranks of a job find each other: who am I, where is the store, have all come?
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
};

struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  // Among the ranks of this host, as far as the launcher says; 0 of 1 where it does not.
  int local_rank = 0;
  int local_world_size = 1;
  // This group's alone: keys of other groups and of earlier lives of the job cannot collide with its own.
  std::shared_ptr<Store> store;
  GroupTimeouts timeouts;
  // 32 bytes, the same on all ranks and new for each group: what a peer proves itself with (HMAC-SHA256). Derived
  // from the job's secret; without one, from a random number that only those know who can read the store.
  std::string key;
  // The numeric address of this host that its peers can reach: the one by which it reaches the store. Loopback where
  // all ranks are on this host, or the caller brought a store of its own.
  std::string address = "127.0.0.1";
};

// Returns on every rank when all have come. `options` decide what they set, the environment (LaunchEnvironment) the
// rest. Throws what it is that stands in the way: a variable that makes no sense, a store that is not reached or does
// not accept the secret, ranks that did not come in time, another world size, or a rank number that is taken.
Rendezvous resolve_rendezvous(const RendezvousOptions& options);

// From the options, or the environment, or the defaults.
GroupTimeouts timeouts_of(const RendezvousOptions& options);

}  // namespace lockstep
