// Ranks that fail while shared memory is made.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "groups.h"
#include "lockstep/comm/process_peers.h"
#include "lockstep/comm/shared_memory_transport.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{20'000};

// Rank 0 should make the memory. It stays alive and does not.
TEST(SharedMemoryFailures, ATransportThatFailedEndsTheWaitForSharedMemory) {
  const auto store = testing::make_memory_store();
  std::unique_ptr<Transport> transports[2];
  const auto make = [&](int rank) {
    const GroupMembership who{.rank = rank, .size = 2, .store = store, .key = "key", .address = "127.0.0.1"};
    transports[rank] = make_shared_memory_transport(make_process_peers(who, TimeLimit(kWait)), kWait);
  };
  std::thread other(make, 1);
  make(0);
  other.join();
  std::thread failing([&] {
    std::this_thread::sleep_for(milliseconds(200));
    transports[0]->fail({0, "rank 0 gave up: out of luck"});
  });
  EXPECT_ERROR(transports[1]->shared_memory(4096, TimeLimit(kWait)), "rank 0 gave up: out of luck");
  failing.join();
}

// Rank 2, a process of its own, uses up its descriptors once it is connected, so it cannot receive shared memory.
TEST(SharedMemoryFailures, ARankThatFailsWhileMemoryIsMadeEndsTheWaitOfTheOthers) {
  int port = 0;
  const auto peers = [&](int rank) {
    const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = port});
    return make_process_peers({.rank = rank, .size = 3, .store = store, .key = "key", .address = "127.0.0.1"},
                              TimeLimit(kWait));
  };
  // Made before this process has threads: fork() in a process with threads may leave a lock held forever.
  int pipe[2], used_up[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ASSERT_EQ(::pipe(used_up), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (::read(pipe[0], &port, sizeof port) != sizeof port) ::_exit(2);
    auto connected = peers(2);
    const rlimit few{40, 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    while (::dup(2) >= 0) {
    }
    if (::write(used_up[1], "01", 2) != 2) ::_exit(2);
    try {
      make_shared_memory_transport(std::move(connected), kWait);
    } catch (const std::exception&) {
      ::_exit(0);
    }
    ::_exit(1);
  }
  const FileDescriptor read_end(pipe[0]), write_end(pipe[1]), wait_end(used_up[0]);
  ::close(used_up[1]);
  const TcpStoreServer server;
  port = server.port();
  ASSERT_EQ(::write(write_end.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
  const auto make = [&](int rank) {
    auto connected = peers(rank);
    // Without this, a descriptor may arrive before they are used up.
    char mine;
    EXPECT_EQ(::read(wait_end.get(), &mine, 1), 1);
    EXPECT_ERROR(make_shared_memory_transport(std::move(connected), kWait),
                 "rank 2 gave up: process group: no descriptor for ");
  };
  std::thread other(make, 1);
  make(0);
  other.join();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
