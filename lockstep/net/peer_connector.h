// Connects each rank with every other rank and refuses everyone else: both sides prove by HMAC-SHA256 that they know
// the group's key. Port scanners and connections that send garbage or nothing are closed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// One rank's view of a group that is being formed.
struct Introduction {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // used by this group alone
  std::string key;               // the secret that all its ranks share
  std::string address;           // numeric; other hosts reach this rank here
};

// The named members of `whole`, ascending, as a group of their own.
Introduction part_of(const Introduction& whole, const std::vector<int>& ranks, const std::string& name);

// Waits for a value that `rank` leaves in the group's store. Throws if the rank does not join in time, or if the store
// does not answer within its client's time.
std::string read_record(const Introduction& group, int rank, const std::string& key, const TimeLimit& limit);

// Unix sockets connect processes of the same host and user, and can pass file descriptors.
enum class SocketKind { unix_domain, tcp };

// Non-blocking stream sockets: [k][r] is the k-th connection with rank r, and a rank's own place is empty.
using PeerSockets = std::vector<std::vector<FileDescriptor>>;

// Fills `sockets`. If it throws, they are those that were connected by then.
void connect_peers(const Introduction& group, SocketKind kind, int connections, const TimeLimit& limit,
                   PeerSockets& sockets);

}  // namespace lockstep
