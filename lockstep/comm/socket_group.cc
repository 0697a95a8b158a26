#include "lockstep/comm/socket_group.h"

#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hmac.h"
#include "lockstep/comm/process_peers.h"
#include "lockstep/comm/shared_memory_transport.h"
#include "lockstep/comm/tcp_transport.h"
#include "lockstep/comm/transport_group.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/numbered_text.h"
#include "lockstep/net/tcp_socket.h"

namespace lockstep {
namespace {

// Returns a text that is equal for processes that reach each other's abstract Unix sockets and accept each other.
std::string host_id() {
  std::array<char, 64> network{};
  if (::readlink("/proc/self/ns/net", network.data(), network.size() - 1) < 0) return hexadecimal(random_bytes(16));
  return read_file("/proc/sys/kernel/random/boot_id", 64) + network.data() + fmt::format(" user {}", ::geteuid());
}

// Every rank publishes its host. If two ranks are on different hosts, all ranks use TCP.
bool all_on_one_host(const GroupMembership& group, bool wants_tcp, const TimeLimit& limit) {
  const auto key = [](int rank) { return fmt::format("host of rank {}", rank); };
  const std::string own = wants_tcp ? hexadecimal(random_bytes(16)) : host_id();
  group.store->set(key(group.rank), own);
  bool same = true;
  for (int r = 0; r < group.size; ++r) {
    const std::string host = read_record(group, r, key(r), limit);
    if (r != group.rank) same = same && host == own;
  }
  return same;
}

// A rank may wait for a rank that itself waits for the missing one. So the first rank that gives up writes its reason
// to the store, and the other ranks report that reason. A rank whose connection was closed waits a moment for the
// reason, because the peer may have left for it.
CommError first_failure(const GroupMembership& group, const CommError& own) {
  const bool was_left = own.what() == lost(own.lost_rank(), kClosedConnection).reason ||
                        own.what() == lost(own.lost_rank(), kClosedGroup).reason;
  try {
    const TimeLimit soon(std::chrono::milliseconds(300));
    while (was_left && !soon.over() && !group.store->contains("failure")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (group.store->add("failures", 1) == 1) {
      group.store->set("failure", NumberedText{own.lost_rank(), own.what()}.str());
      return own;
    }
    const NumberedText first =
        parse_numbered_text("a lost rank", group.store->get("failure", std::chrono::seconds(1)), -1, group.size - 1);
    return first.number == group.rank ? own : CommError(first.text, first.number);
  } catch (const std::exception&) {
    return own;  // the store may be gone with the rank that hosted it
  }
}

std::unique_ptr<Transport> make_transport(const GroupMembership& group, std::chrono::milliseconds timeout,
                                          TransportChoice transport) {
  const TimeLimit limit(timeout);
  if (!all_on_one_host(group, transport == TransportChoice::tcp, limit)) return make_tcp_transport(group, timeout);
  return make_shared_memory_transport(make_process_peers(group, limit), timeout);
}

}  // namespace

TransportChoice transport_from_environment() {
  const std::string value = environment("LOCKSTEP_TRANSPORT").value_or("auto");
  check(value == "auto" || value == "tcp", "LOCKSTEP_TRANSPORT is \"{}\", expected auto or tcp", value);
  return value == "tcp" ? TransportChoice::tcp : TransportChoice::automatic;
}

std::shared_ptr<ProcessGroup> make_socket_group(GroupMembership group, const GroupTimeouts& timeouts,
                                                TransportChoice transport, std::string name, FailureReporter report) {
  const auto give_up = [&](const CommError& error) {
    const CommError first = first_failure(group, error);
    return CommError(fmt::format("{} during rendezvous", first.what()), first.lost_rank());
  };
  try {
    return std::make_shared<TransportGroup>(make_transport(group, timeouts.silence, transport), std::move(name),
                                            timeouts, std::move(report));
  } catch (const CommError& error) {
    throw give_up(error);
  } catch (const std::exception& error) {
    throw give_up(CommError(fmt::format("rank {} gave up: {}", group.rank, error.what()), group.rank));
  }
}

}  // namespace lockstep
