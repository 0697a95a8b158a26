#include "lockstep/net/descriptor_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/store_protocol.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/net/raw_client.h"
#include "tests/process_limits.h"

namespace {
std::atomic<int> accepts{0};
}

// In place of the C library's: counts the calls of the servers in this program.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  ++accepts;
  return static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
}

namespace lockstep {
namespace {

using namespace std::chrono_literals;

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

TEST(DescriptorLimit, AStoreThatNeedsMoreSaysSoAndGoesOn) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(32, 32);
              const TcpStoreServer server;
              const TcpStoreOptions options{.port = server.port(), .connect_timeout = 3s};
              if (server.accept_error() != 0) return 1;
              std::vector<std::unique_ptr<TcpStore>> clients;
              try {
                while (clients.size() < 32) clients.push_back(std::make_unique<TcpStore>(options));
                return 2;
              } catch (const std::exception&) {
                // As expected.
              }
              if (server.accept_error() != EMFILE) return 3;
              clients.resize(clients.size() / 2);
              return TcpStore({.port = server.port()}).add("count", 1) == 1 ? 0 : 4;
            }),
            0);
  EXPECT_EQ(describe_descriptor_error(EMFILE).substr(0, 27), "Too many open files (limit ");
}

// All descriptors that this process may still open.
std::vector<FileDescriptor> take_descriptors() {
  std::vector<FileDescriptor> taken;
  for (int descriptor; (descriptor = ::dup(2)) >= 0;) taken.emplace_back(descriptor);
  return taken;
}

TEST(DescriptorLimit, AStoreWithoutOneBacksOffAndForgetsNobody) {
  EXPECT_EQ(status_of_process([] {
              limit_descriptors(64, 64);
              const TcpStoreServer server;
              TcpStore admitted({.port = server.port()});
              std::vector<FileDescriptor> taken = take_descriptors();
              taken.pop_back();
              RawClient waiting(server.port());
              while (server.accept_error() != EMFILE) std::this_thread::sleep_for(1ms);
              const auto begin = std::chrono::steady_clock::now();
              const int before = accepts;
              admitted.set("key", "value");
              std::this_thread::sleep_for(300ms);
              const int tries = accepts - before;
              if (tries > (std::chrono::steady_clock::now() - begin) / 100ms + 2) return 1;
              taken.clear();
              if (waiting.receive(kStoreMagic.size()) != kStoreMagic) return 2;
              return admitted.get("key", 0ms) == "value" ? 0 : 3;
            }),
            0);
}

TEST(DescriptorLimit, AClientWithoutOneTriesAgainAndSaysSo) {
  const TcpStoreServer server;
  EXPECT_EQ(status_of_process([&] {
              limit_descriptors(64, 64);
              std::vector<FileDescriptor> taken = take_descriptors();
              try {
                TcpStore({.port = server.port(), .connect_timeout = 50ms});
                return 1;
              } catch (const ConnectionError&) {
                return 4;  // the store is not to blame
              } catch (const Error& error) {
                const std::string_view why = error.what();
                if (why.find("cannot make a socket: Too many open files (limit 64)") == why.npos) return 2;
              }
              std::thread frees([&] {
                std::this_thread::sleep_for(50ms);
                taken.clear();
              });
              TcpStore store({.port = server.port(), .connect_timeout = 20s});
              frees.join();
              return store.add("count", 1) == 1 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
