#include "lockstep/comm/socket_transfers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The sockets of two ranks, with each rank's own place empty.
struct Pair {
  std::vector<PeerSocket> of[2];

  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    for (std::size_t r : {0, 1}) {
      of[r].resize(2);
      of[r][1 - r].socket = FileDescriptor(ends[r]);
    }
  }
};

std::vector<std::byte> pattern(std::size_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed));
  return data;
}

TEST(SocketTransfers, BothDirectionsMoveMoreThanSocketsHold) {
  Pair pair;
  const std::vector<std::size_t> sizes{3'000'000, 0, 1, 70'001};
  const auto run = [&](int rank) {
    SocketTransfers transfers(pair.of[rank]);
    std::vector<std::vector<std::byte>> sent, received;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sent.push_back(pattern(sizes[i], rank + static_cast<int>(i)));
      received.emplace_back(sizes[i] + 5);  // the buffer may be larger than the message
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      transfers.receive(1 - rank, 0, received[i].data(), received[i].size());
      transfers.send(1 - rank, 0, sent[i].data(), sent[i].size());
    }
    EXPECT_EQ(transfers.wait(TimeLimit(60s)).result, Transfers::Result::done);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      received[i].resize(sizes[i]);
      EXPECT_EQ(received[i], pattern(sizes[i], 1 - rank + static_cast<int>(i)));
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST(SocketTransfers, AMessageOfMoreThanItsPlaceBreaksTheLine) {
  Pair pair;
  SocketTransfers sender(pair.of[0]), receiver(pair.of[1]);
  std::byte data[9] = {}, place[8];
  sender.send(1, 0, data, sizeof data);
  EXPECT_EQ(sender.wait(TimeLimit(1s)).result, Transfers::Result::done);
  receiver.receive(0, 0, place, sizeof place);
  const auto outcome = receiver.wait(TimeLimit(20s));
  EXPECT_EQ(outcome.result, Transfers::Result::broken);
  EXPECT_EQ(outcome.rank, 0);
}

TEST(SocketTransfers, WhoeverIsSilentIsNamedWhenTheTimeIsOver) {
  Pair pair;
  SocketTransfers transfers(pair.of[1]);
  std::byte place[8];
  transfers.receive(0, 0, place, sizeof place);
  const auto outcome = transfers.wait(TimeLimit(20ms));
  EXPECT_EQ(outcome.result, Transfers::Result::timed_out);
  EXPECT_EQ(outcome.rank, 0);
}

TEST(SocketTransfers, AClosedLineEndsTheWaitAtOnce) {
  Pair pair;
  SocketTransfers transfers(pair.of[1]);
  std::byte place[8];
  transfers.receive(0, 0, place, sizeof place);
  std::thread other([&] { pair.of[0][1].socket.reset(); });
  const auto outcome = transfers.wait(TimeLimit(60s));
  other.join();
  EXPECT_EQ(outcome.result, Transfers::Result::broken);
  EXPECT_EQ(outcome.rank, 0);
}

TEST(SocketTransfers, OneWithWhomAllIsDoneMayLeave) {
  Pair pair;
  std::byte data[8] = {}, place[8];
  {
    SocketTransfers sender(pair.of[0]);
    sender.send(1, 0, data, sizeof data);
    EXPECT_EQ(sender.wait(TimeLimit(1s)).result, Transfers::Result::done);
    pair.of[0][1].socket.reset();
  }
  SocketTransfers receiver(pair.of[1]);
  receiver.receive(0, 0, place, sizeof place);
  EXPECT_EQ(receiver.wait(TimeLimit(20s)).result, Transfers::Result::done);
}

}  // namespace
}  // namespace lockstep
