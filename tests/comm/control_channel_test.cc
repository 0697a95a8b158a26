#include "lockstep/comm/control_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kAmple = 20s;

// Both ends of a connection between ranks 0 and 1, as ControlChannel expects them.
struct Connection {
  std::vector<FileDescriptor> zero{2}, one{2};
  Connection() {
    int ends[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
    zero[1] = FileDescriptor(ends[0]);
    one[0] = FileDescriptor(ends[1]);
  }
};

// Rank 1 does not read at first, like a stopped process.
TEST(ControlChannel, AMessageThatWasGivenUpDoesNotSwallowWhatComesNext) {
  Connection connection;
  ControlChannel zero(0, std::move(connection.zero), kAmple);
  const Message message{{.count = 42}, std::vector<std::byte>(4'000'000, std::byte{7})};
  EXPECT_THROW(zero.send(1, 5, message, TimeLimit(50ms)), CommError);
  zero.tell_failure({0, "rank 0 gave up: out of luck"});

  std::promise<std::string> told;
  ControlChannel one(1, std::move(connection.one), kAmple);
  one.watch([&](const RankFailure& failure) { told.set_value(failure.reason); });
  auto reason = told.get_future();
  ASSERT_EQ(reason.wait_for(kAmple), std::future_status::ready);
  EXPECT_EQ(reason.get(), "rank 0 gave up: out of luck");
  const auto received = one.mailbox().take(0, 5, TimeLimit(kAmple), [] { return false; });
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->header.count, 42u);
  EXPECT_EQ(received->bytes, message.bytes);
  one.watch(nullptr);
}

// A thread that waits to send to a rank that does not read occupies the connection.
TEST(ControlChannel, AFailureIsToldWhileAMessageWaitsForRoom) {
  Connection connection;
  ControlChannel zero(0, std::move(connection.zero), kAmple);
  const Message message{{}, std::vector<std::byte>(4'000'000)};
  auto sending = std::async(std::launch::async, [&] { zero.send(1, 5, message, TimeLimit(kAmple)); });
  std::this_thread::sleep_for(100ms);
  zero.tell_failure({0, "rank 0 gave up: out of luck"});
  EXPECT_ERROR(sending.get(), "rank 0 gave up: out of luck");

  std::promise<std::string> told;
  ControlChannel one(1, std::move(connection.one), kAmple);
  one.watch([&](const RankFailure& failure) { told.set_value(failure.reason); });
  auto reason = told.get_future();
  ASSERT_EQ(reason.wait_for(kAmple), std::future_status::ready);
  EXPECT_EQ(reason.get(), "rank 0 gave up: out of luck");
  one.watch(nullptr);
}

}  // namespace
}  // namespace lockstep
