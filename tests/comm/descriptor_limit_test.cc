#include "lockstep/comm/descriptor_limit.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <thread>

#include "groups.h"
#include "lockstep/comm/launcher.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/comm/tcp_store.h"
#include "lockstep/comm/tcp_store_server.h"
#include "tests/environment_variable.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The status of a process that does it: limits and system calls are a process's own. It is killed if it takes long.
int status_of_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int status = 100;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  check(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

rlim_t soft_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// From now on as on a kernel, or in a sandbox, that does not know the system call. False where that cannot be had.
bool forbid(int system_call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(system_call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

constexpr int kNoFilter = 77;

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

TEST(DescriptorLimit, OpenOnesAreClosedWhereOneCallCannot) {
  const int status = status_of_process([] {
    if (!forbid(SYS_close_range)) return kNoFilter;
    if (::close_range(900, ~0U, 0) == 0) return 1;
    for (int descriptor = 10; descriptor < 600; ++descriptor) ::dup2(2, descriptor);
    close_descriptors_from(20);
    if (!is_open(2) || !is_open(10) || !is_open(19)) return 2;
    for (int descriptor = 20; descriptor < 600; ++descriptor) {
      if (is_open(descriptor)) return 3;
    }
    return 0;
  });
  if (status == kNoFilter) GTEST_SKIP() << "no filter of system calls";
  EXPECT_EQ(status, 0);
}

TEST(DescriptorLimit, OpenOnesAreClosedWhereNothingListsThem) {
  const int status = status_of_process([] {
    limit_descriptors(600, 600);
    if (!forbid(SYS_close_range) || !forbid(SYS_getdents64)) return kNoFilter;
    for (int descriptor = 10; descriptor < 600; ++descriptor) ::dup2(2, descriptor);
    close_descriptors_from(20);
    for (int descriptor = 20; descriptor < 600; ++descriptor) {
      if (is_open(descriptor)) return 3;
    }
    return is_open(19) ? 0 : 2;
  });
  if (status == kNoFilter) GTEST_SKIP() << "no filter of system calls";
  EXPECT_EQ(status, 0);
}

int launch_true() {
  return launch({.command = {"/bin/true"}, .nproc_per_node = 2, .output = [](bool, std::string_view) {}})
      .status;
}

TEST(DescriptorLimit, ALaunchEndsWhereOneCallCannotCloseThem) {
  const int status = status_of_process([] { return forbid(SYS_close_range) ? launch_true() : kNoFilter; });
  if (status == kNoFilter) GTEST_SKIP() << "no filter of system calls";
  EXPECT_EQ(status, 0);
}

TEST(DescriptorLimit, IsRaisedByALaunchAndByAGroup) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(64, 500);
              const int status = launch_true();
              return soft_limit() == 500 ? status : 1;
            }),
            0);
  const TcpStoreServer server({.secret = "0123456789abcdef"});
  const EnvironmentVariable secret("LOCKSTEP_SECRET", "0123456789abcdef");
  EXPECT_EQ(status_of_process([&] {
              limit_descriptors(64, 500);
              const auto store = std::make_shared<TcpStore>(
                  TcpStoreOptions{.port = server.port(), .secret = "0123456789abcdef"});
              init_process_group({.backend = "gloo", .rank = 0, .world_size = 1, .store = store});
              return soft_limit() == 500 ? 0 : 1;
            }),
            0);
}

TEST(DescriptorLimit, IsRaisedAsFarAsItShallBeAndNeverLowered) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(64, 500);
              raise_descriptor_limit(300);
              if (soft_limit() != 300) return 1;
              raise_descriptor_limit(200);
              if (soft_limit() != 300) return 2;
              raise_descriptor_limit();
              return soft_limit() == 500 ? 0 : 3;
            }),
            0);
}

// Eight ranks, which are threads here, share 40 descriptors and need 176. All of them learn why, also one that finds none
// left for its own port, and one that waits for another. None spins meanwhile.
TEST(DescriptorLimit, AGroupThatNeedsMoreSaysSo) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(40, 40);
              const auto store = testing::make_memory_store();
              // A quarter of it is how late a rank may begin on a busy machine.
              const GroupTimeouts timeouts{.silence = 4s, .progress = 4s};
              std::vector<std::string> errors(8);
              std::vector<std::thread> ranks;
              for (int rank = 0; rank < 8; ++rank) {
                ranks.emplace_back([&, rank] {
                  try {
                    make_socket_group(
                        {.rank = rank, .size = 8, .store = store, .key = "key", .address = "127.0.0.1"},
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

TEST(DescriptorLimit, ARankWithoutOneForItsPortSaysSo) {
  EXPECT_EQ(
      status_of_process([] {
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

TEST(DescriptorLimit, AStoreThatNeedsMoreSaysSoAndGoesOn) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(32, 32);
              const TcpStoreServer server;
              const TcpStoreOptions options{.port = server.port(), .connect_timeout = 300ms};
              if (server.accept_error() != 0) return 1;
              std::vector<std::unique_ptr<TcpStore>> clients;
              try {
                while (clients.size() < 32) clients.push_back(std::make_unique<TcpStore>(options));
                return 2;
              } catch (const std::exception&) {
                // As it should be.
              }
              if (server.accept_error() != EMFILE) return 3;
              clients.resize(clients.size() / 2);
              return TcpStore({.port = server.port()}).add("count", 1) == 1 ? 0 : 4;
            }),
            0);
  EXPECT_EQ(describe_descriptor_error(EMFILE).substr(0, 27), "Too many open files (limit ");
}

}  // namespace
}  // namespace lockstep
