#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "groups.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/environment_variable.h"
#include "tests/process_limits.h"

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
              const GroupTimeouts timeouts{.silence = 4s, .progress = 4s};
              std::vector<std::string> errors(8);
              std::vector<std::thread> ranks;
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
              rusage used{};
              ::getrusage(RUSAGE_SELF, &used);
              if (used.ru_utime.tv_sec + used.ru_stime.tv_sec > 1) return 2;
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
