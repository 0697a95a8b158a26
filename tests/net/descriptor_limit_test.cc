#include "lockstep/net/descriptor_limit.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/process_limits.h"

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
              const TcpStoreOptions options{.port = server.port(), .connect_timeout = 300ms};
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

}  // namespace
}  // namespace lockstep
