// Properties of all connections, those between ranks and those with the store.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <future>
#include <memory>
#include <vector>

#include "lockstep/net/peer_connector.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/process_limits.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

int option_of(const FileDescriptor& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(socket.get(), level, option, &value, &size);
  return value;
}

TEST(Connections, OfRanksNoticeWithinAMinuteThatAHostHasVanished) {
  const TcpStoreServer server;
  const auto connect = [&](int rank) {
    return std::async(std::launch::async, [&, rank] {
      const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
      PeerSockets sockets;
      connect_peers({.rank = rank, .size = 2, .store = store, .key = "key", .address = "127.0.0.1"}, SocketKind::tcp, 1,
                    TimeLimit(20s), sockets);
      return std::move(sockets[0][static_cast<std::size_t>(1 - rank)].socket);
    });
  };
  auto zero = connect(0), one = connect(1);
  for (const FileDescriptor& socket : {zero.get(), one.get()}) {
    EXPECT_EQ(option_of(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_LE(option_of(socket, IPPROTO_TCP, TCP_KEEPIDLE) +
                  option_of(socket, IPPROTO_TCP, TCP_KEEPINTVL) * option_of(socket, IPPROTO_TCP, TCP_KEEPCNT),
              60);
  }
}

TEST(Connections, TheRouteToAHostGivesThisHostsAddress) {
  EXPECT_EQ(host_towards("127.0.0.1"), "127.0.0.1");
  if (const std::string own = outward_host(); !own.empty()) {
    EXPECT_EQ(host_towards(own), own);
  }
}

// The system refuses to wait for more descriptors than a process may open.
TEST(DescriptorLimit, AStoreStillAnswersWhereItWasLowered) {
  EXPECT_EQ(status_of_process([] {
              const TcpStoreServer server;
              TcpStore store({.port = server.port()});
              store.set("key", "value");
              limit_descriptors(2, 2);
              for (int i = 0; i < 3; ++i) {
                if (store.get("key", 0ms) != "value") return 1;
              }
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
