#include "lockstep/comm/control_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_socket.h"
#include "tests/comm/groups.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kAmple = 20s;

// Both ends of a connection between ranks 0 and 1, as ControlChannel expects them.
struct Connection {
  std::vector<PeerSocket> zero, one;
  Connection() {
    int ends[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
    zero.resize(2);
    one.resize(2);
    zero[1].socket = FileDescriptor(ends[0]);
    one[0].socket = FileDescriptor(ends[1]);
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
  const auto received = one.receive(0, 5, TimeLimit(kAmple), [] { return false; });
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

// A TCP connection, whose end drops what is unsent if it is closed with something unread.
std::pair<FileDescriptor, FileDescriptor> tcp_pair() {
  const FileDescriptor listener = listen_at(resolve_host("127.0.0.1", 0).at(0));
  const SocketAddress address = local_address(listener);
  FileDescriptor one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(::connect(one.get(), address.get(), address.size()) == 0, "connect");
  pollfd item{listener.get(), POLLIN, 0};
  ::poll(&item, 1, 20'000);
  FileDescriptor zero(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return {std::move(zero), std::move(one)};
}

// The other rank sends heartbeats all the time, and reads late.
TEST(ControlChannel, AMessageArrivesWholeThoughTheGroupIsClosed) {
  auto [zero_end, one_end] = tcp_pair();
  std::vector<PeerSocket> sockets(2);
  sockets[1].socket = std::move(zero_end);
  auto zero = std::make_unique<ControlChannel>(0, std::move(sockets), kAmple);
  const std::size_t bytes = 2'000'000;
  zero->send(1, 5, {{}, std::vector<std::byte>(bytes, std::byte{7})}, TimeLimit(kAmple));
  auto closing = std::async(std::launch::async, [&] { zero.reset(); });
  // Part of a frame, so that the channel goes on waiting for the rest.
  std::size_t got = 0;
  std::vector<char> buffer(100'000);
  const char beat[1] = {};
  for (bool open = true; open;) {
    (void)!::send(one_end.get(), beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
    std::this_thread::sleep_for(1ms);
    (void)!::send(one_end.get(), beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
    const ssize_t n = ::recv(one_end.get(), buffer.data(), buffer.size(), 0);
    open = n > 0;
    if (open) got += static_cast<std::size_t>(n);
  }
  closing.get();
  EXPECT_GT(got, bytes) << "the message, its frame, and the shutdown message";
}

TEST(ControlChannel, ASenderWaitsForAReceiverThatFallsBehind) {
  Connection connection;
  ControlChannel zero(0, std::move(connection.zero), kAmple), one(1, std::move(connection.one), kAmple);
  const Message large{{}, std::vector<std::byte>(kMostUnreceived / 2 + 1)};
  zero.send(1, 5, large, TimeLimit(kAmple));
  EXPECT_ERROR(zero.send(1, 6, large, TimeLimit(100ms)), "rank 1 hangs (alive, but did not join within 100 ms)");
  const auto none = [] { return false; };
  auto sent = std::async(std::launch::async, [&] { zero.send(1, 6, large, TimeLimit(kAmple)); });
  EXPECT_TRUE(one.receive(0, 5, TimeLimit(kAmple), none).has_value());
  sent.get();
  EXPECT_TRUE(one.receive(0, 6, TimeLimit(kAmple), none).has_value());
  // A larger one passes when nothing else waits.
  const Message larger{{}, std::vector<std::byte>(kMostUnreceived + 1)};
  zero.send(1, 7, larger, TimeLimit(kAmple));
  EXPECT_TRUE(one.receive(0, 7, TimeLimit(kAmple), none).has_value());
}

// The store of a rank that stops, like a stopped process, when it asks for `key`.
class StoreThatStops : public Store {
 public:
  StoreThatStops(std::shared_ptr<Store> store, std::string key) : store_(std::move(store)), key_(std::move(key)) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key == key_ ? "nothing" : key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  bool contains(const std::string& key) override { return store_->contains(key); }

 private:
  std::shared_ptr<Store> store_;
  std::string key_;
};

// Rank 2 stops between its calls of rank 0, which is then done, and of rank 1, which gives up.
TEST(ControlChannel, ARankThatGivesUpTellsThoseThatHaveAllTheirConnections) {
  for (SocketKind kind : {SocketKind::unix_domain, SocketKind::tcp}) {
    const auto store = testing::make_memory_store();
    const auto stops = std::make_shared<StoreThatStops>(store, "address of rank 1");
    const auto connect = [&](int rank, std::chrono::milliseconds timeout) {
      return std::async(std::launch::async, [=] {
        return ControlChannel::connect({rank, 3, rank == 2 ? stops : store, "key", "127.0.0.1"}, kind, 2,
                                       TimeLimit(timeout));
      });
    };
    auto zero = connect(0, kAmple), one = connect(1, 2s), two = connect(2, 4s);
    std::promise<RankFailure> told;
    ControlChannel channel(0, std::move(zero.get()[1]), kAmple);
    std::once_flag first;
    channel.watch([&](const RankFailure& failure) { std::call_once(first, [&] { told.set_value(failure); }); });
    auto failure = told.get_future();
    ASSERT_EQ(failure.wait_for(kAmple), std::future_status::ready);
    EXPECT_EQ(failure.get().culprit, 2);
    EXPECT_ERROR(one.get(), "rank 2 lost (did not join within");
    EXPECT_ERROR(two.get(), "rank 1 lost (did not join within");
    channel.watch(nullptr);
  }
}

}  // namespace
}  // namespace lockstep
