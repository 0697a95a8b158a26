// Connects every rank with every other one, and refuses all others: both sides prove by HMAC-SHA256 that they know the
// group's key. Port scanners, garbage and connections that say nothing are closed or outwaited.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// A rank's view of a group that is being made.
struct Introduction {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // this group's alone
  std::string key;               // of all its ranks, and secret
  std::string address;           // numeric: where peers of other hosts reach this one
};

// The members of `whole` that are named, ascending, as a group of their own.
Introduction part_of(const Introduction& whole, const std::vector<int>& ranks, const std::string& name);

// Waits for a value that the rank leaves in the group's store. Throws that the rank did not come in time.
std::string read_record(const Introduction& group, int rank, const std::string& key, const TimeLimit& limit);

// Stream sockets, not blocking: [k][r] is the k-th connection with rank r; a rank's own place is empty. `kind`:
// Unix sockets reach processes of this host and of this user, and pass file descriptors.
enum class SocketKind { unix_domain, tcp };
std::vector<std::vector<FileDescriptor>> connect_peers(const Introduction& group, SocketKind kind, int connections,
                                                       const TimeLimit& limit);

}  // namespace lockstep
