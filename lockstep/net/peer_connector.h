// Internal: connects each rank with every other rank. Both sides prove by HMAC-SHA256 that they know the group's key.
// All other connections, such as those of port scanners, are closed. Over TCP, each later message has a tag: an
// attacker who changes packets can end the job, but cannot change what it computes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/message_mac.h"
#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// What a rank needs to connect with the other ranks of a group.
struct GroupMembership {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // used by this group alone
  std::string key;               // the secret that all ranks of the group share
  std::string address;           // numeric; ranks on other hosts connect to it
};

// Returns this rank's membership in the group of `ranks` (ascending).
GroupMembership subgroup_of(const GroupMembership& whole, const std::vector<int>& ranks, const std::string& name);

// Waits for a value that `rank` writes to the group's store. Throws if the rank does not join in time, or if the store
// does not answer within its client's timeout.
std::string read_record(const GroupMembership& group, int rank, const std::string& key, const TimeLimit& limit);

// Unix sockets connect processes of the same host and user. They can pass file descriptors.
enum class SocketKind { unix_domain, tcp };

// A connection with another rank: a non-blocking stream socket.
struct PeerSocket {
  FileDescriptor socket;
  // Tags of the messages in both directions. Unix sockets have none, because only the kernel moves their bytes.
  MessageMac outgoing, incoming;

  int get() const { return socket.get(); }
  explicit operator bool() const { return static_cast<bool>(socket); }
};

// [k][r] is the k-th connection with rank r. A rank has no connection with itself: that entry is empty.
using PeerSockets = std::vector<std::vector<PeerSocket>>;

// Fills `sockets`. If it throws, `sockets` holds the connections made until then.
void connect_peers(const GroupMembership& group, SocketKind kind, int connections, const TimeLimit& limit,
                   PeerSockets& sockets);

}  // namespace lockstep
