#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "groups.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"
#include "tests/process_limits.h"

namespace {

std::atomic<std::int64_t> socket_calls{0};

// The definition behind this program's own: the C library's, or a sanitizer's.
template <typename F>
F* next_definition(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// They count the calls by which ranks reach each other. Every loop of theirs has one of them.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  static const auto next = next_definition<int(int, int, int)>("socket");
  ++socket_calls;
  return next(domain, type, protocol);
}
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  static const auto next = next_definition<int(int, sockaddr*, socklen_t*, int)>("accept4");
  ++socket_calls;
  return next(listener, address, size, flags);
}
extern "C" int poll(pollfd* items, nfds_t count, int milliseconds) {
  static const auto next = next_definition<int(pollfd*, nfds_t, int)>("poll");
  ++socket_calls;
  return next(items, count, milliseconds);
}

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(GroupDescriptors, LimitIsRaised) {
  const TcpStoreServer server({.secret = "0123456789abcdef"});
  const EnvironmentVariable secret("LOCKSTEP_SECRET", "0123456789abcdef");
  EXPECT_EQ(status_of_process([&] {
              limit_descriptors(64, 500);
              const auto store =
                  std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port(), .secret = "0123456789abcdef"});
              init_process_group({.backend = "gloo", .rank = 0, .world_size = 1, .store = store});
              return soft_limit() == 500 ? 0 : 1;
            }),
            0);
}

// Eight ranks are threads that share 40 descriptors and need 176. Each of them reports why, including a rank without a
// descriptor for its own port and a rank that waits for another one. None spins meanwhile.
TEST(GroupDescriptors, AGroupThatNeedsMoreSaysSo) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(40, 40);
              const auto store = testing::make_memory_store();
              // On a busy machine, a rank may start late by a quarter of this.
              const GroupTimeouts timeouts{.silence = 8s, .progress = 8s};
              std::vector<std::string> errors(8);
              std::vector<std::thread> ranks;
              const auto begin = std::chrono::steady_clock::now();
              for (int rank = 0; rank < 8; ++rank) {
                ranks.emplace_back([&, rank] {
                  try {
                    make_socket_group({.rank = rank, .size = 8, .store = store, .key = "key", .address = "127.0.0.1"},
                                      timeouts, TransportChoice::tcp);
                  } catch (const std::exception& error) {
                    errors[static_cast<std::size_t>(rank)] = error.what();
                  }
                });
              }
              for (std::thread& rank : ranks) rank.join();
              // A rank that lacks a descriptor makes a few calls and sleeps, for 20 ms at least. A loop without a sleep
              // makes about a thousand times as many.
              const std::int64_t sleeps = 8 * ((std::chrono::steady_clock::now() - begin) / 20ms + 1);
              if (socket_calls == 0 || socket_calls > 20 * sleeps) return 2;
              int status = 0;
              for (const std::string& error : errors) {
                if (error.find("Too many open files (limit 40)") != std::string::npos) continue;
                std::fprintf(stderr, "rank %td: \"%s\"\n", &error - errors.data(), error.c_str());
                status = 1;
              }
              return status;
            }),
            0);
}

TEST(GroupDescriptors, ARankWithoutOneForACallBacksOff) {
  EXPECT_EQ(status_of_process([] {
              const auto store = testing::make_memory_store();
              store->set("host of rank 1", "another");
              limit_descriptors(40, 40);
              std::string error;
              std::thread rank([&] {
                try {
                  make_socket_group({.rank = 0, .size = 2, .store = store, .key = "key", .address = "127.0.0.1"},
                                    {.silence = 4s, .progress = 4s}, TransportChoice::tcp);
                } catch (const CommError& e) {
                  error = e.what();
                }
              });
              const std::string address = store->get("address of rank 0", 20s);
              const FileDescriptor caller(::socket(AF_INET, SOCK_STREAM, 0));
              while (::dup(2) >= 0) {
              }
              const std::int64_t before = socket_calls;
              const auto begin = std::chrono::steady_clock::now();
              const SocketAddress port =
                  resolve_host("127.0.0.1", std::stoi(address.substr(address.find(' ') + 1))).at(0);
              if (::connect(caller.get(), port.get(), port.size()) != 0) return 1;
              rank.join();
              // Every 100 ms it sees the call, fails to accept it, and waits.
              const std::int64_t rounds = (std::chrono::steady_clock::now() - begin) / 100ms + 2;
              const std::int64_t calls = socket_calls - before;
              if (calls == 0 || calls > 3 * rounds) return 2;
              return error.find("Too many open files (limit 40)") != std::string::npos ? 0 : 3;
            }),
            0);
}

TEST(GroupDescriptors, ARankWithoutOneForItsPortSaysSo) {
  EXPECT_EQ(status_of_process([] {
              const auto store = testing::make_memory_store();
              store->set("host of rank 1", "another");
              limit_descriptors(40, 40);
              while (::dup(2) >= 0) {
              }
              try {
                make_socket_group({.rank = 0, .size = 2, .store = store, .key = "key", .address = "127.0.0.1"},
                                  {.silence = 1s, .progress = 1s}, TransportChoice::tcp);
                return 1;
              } catch (const CommError& error) {
                const std::string expected =
                    "rank 0 gave up: Too many open files (limit 40) for connections with 2 ranks during rendezvous";
                if (error.what() == expected && error.lost_rank() == 0) return 0;
                std::fprintf(stderr, "%s\n", error.what());
                return 2;
              }
            }),
            0);
}

}  // namespace
}  // namespace lockstep
