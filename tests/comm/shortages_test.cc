// A process that lacks threads or descriptors.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "lockstep/comm/control_channel.h"
#include "lockstep/comm/operation_queue.h"
#include "tests/process_limits.h"
#include "tests/thread_limit.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// An operation without a thread would wait for ever, and the queue's end with it.
TEST(Shortages, AnOperationWithoutAThreadIsNotQueued) {
  if (!kThreadsCanBeLimited) GTEST_SKIP() << "under the thread sanitizer";
  EXPECT_EQ(status_of_process([] {
              allow_one_more_thread();
              const auto queue = std::make_shared<OperationQueue>(false);
              std::atomic<bool> end{false};
              std::thread other([&] {
                while (!end) std::this_thread::sleep_for(1ms);
              });
              int runs = 0;
              try {
                queue->push([&] { runs += 100; });
                return 1;
              } catch (const std::system_error&) {
                // As expected.
              }
              end = true;
              other.join();
              if (!queue->idle() || !is_only_thread()) return 2;
              queue->push([&] { ++runs; });
              queue->close();
              return runs == 1 ? 0 : 3;
            }),
            0);
}

// The system refuses to wait for more descriptors than a process may open.
TEST(DescriptorLimit, RanksStillHearEachOtherWhereItWasLowered) {
  EXPECT_EQ(status_of_process([] {
              int ends[2];
              check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
              std::vector<PeerSocket> of_zero(2), of_one(2);
              of_zero[1].socket = FileDescriptor(ends[0]);
              of_one[0].socket = FileDescriptor(ends[1]);
              ControlChannel zero(0, std::move(of_zero), 2s), one(1, std::move(of_one), 2s);
              std::atomic<bool> failed{false};
              for (ControlChannel* channel : {&zero, &one}) {
                channel->watch([&](const RankFailure&) { failed = true; });
              }
              limit_descriptors(2, 2);
              std::this_thread::sleep_for(4s);
              zero.send(1, 5, {{.count = 42}, {}}, TimeLimit(10s));
              const auto received = one.receive(0, 5, TimeLimit(10s), [] { return false; });
              for (ControlChannel* channel : {&zero, &one}) channel->watch(nullptr);
              return failed ? 1 : !received ? 2 : received->header.count == 42 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace lockstep
