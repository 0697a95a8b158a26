// Somebody between two hosts changes what ranks send to each other.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <list>
#include <thread>

#include "groups.h"
#include "lockstep/comm/control_channel.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/comm/socket_transfers.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_socket.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::HasSubstr;

enum class Damage { none, flip, repeat };

// Passes on what both sides of a connection send, and does damage to it.
class Relay {
 public:
  Relay() : listener_(listen_at(resolve_host("127.0.0.1", 0).front())) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  int port() const { return local_address(listener_).port(); }
  void lead_to(int port) { true_port_ = port; }
  void do_damage(Damage damage) { damage_ = damage; }
  int damaged() const { return damaged_; }

 private:
  using Line = std::array<FileDescriptor, 2>;

  void run() {
    std::list<Line> lines;
    while (!stop_) {
      std::vector<pollfd> items{{true_port_ > 0 ? listener_.get() : -1, POLLIN, 0}};
      for (const Line& line : lines) {
        for (const FileDescriptor& end : line) items.push_back({end.get(), POLLIN, 0});
      }
      wait_for_any(items, std::chrono::steady_clock::now() + 10ms);
      std::size_t i = 1;
      for (Line& line : lines) {
        for (std::size_t from : {0, 1}) {
          if (items[i++].revents != 0) pass_on(line, from);
        }
      }
      if (items[0].revents != 0) lines.push_back(new_line());
    }
  }

  Line new_line() const {
    Line line;
    line[0] = FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const SocketAddress address = resolve_host("127.0.0.1", true_port_).front();
    line[1] = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(::connect(line[1].get(), address.get(), address.size()) == 0, "connect");
    return line;
  }

  void pass_on(Line& line, std::size_t from) {
    std::array<char, 4096> bytes;
    const ssize_t n = ::recv(line[from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      for (FileDescriptor& end : line) end.reset();
      return;
    }
    const auto send = [&] {
      (void)!::send(line[1 - from].get(), bytes.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL);
    };
    if (damage_ != Damage::none) ++damaged_;
    if (damage_ == Damage::flip) bytes[static_cast<std::size_t>(n - 1)] ^= 1;
    send();
    if (damage_ == Damage::repeat) send();
  }

  const FileDescriptor listener_;
  std::atomic<int> true_port_{0}, damaged_{0};
  std::atomic<Damage> damage_{Damage::none};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Rank 1 reaches rank 0 through the relay.
class RelayingStore final : public Store {
 public:
  RelayingStore(std::shared_ptr<Store> store, Relay& relay) : store_(std::move(store)), relay_(relay) {}
  void set(const std::string& key, std::string_view value) override { store_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const std::string value = store_->get(key, timeout);
    if (key != "address of rank 0") return value;
    relay_.lead_to(std::stoi(value.substr(value.find(' '))));
    return fmt::format("127.0.0.1 {}", relay_.port());
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  bool contains(const std::string& key) override { return store_->contains(key); }

 private:
  std::shared_ptr<Store> store_;
  Relay& relay_;
};

class Tampering : public ::testing::TestWithParam<Damage> {
 protected:
  std::vector<std::shared_ptr<ProcessGroup>> two_ranks() {
    const auto store = testing::make_memory_store();
    const auto join = [&](int rank, const std::shared_ptr<Store>& own_store) {
      return std::async(std::launch::async, [=] {
        return make_socket_group({.rank = rank, .size = 2, .store = own_store, .key = "key", .address = "127.0.0.1"},
                                 {.silence = 20s, .progress = 20s}, TransportChoice::tcp);
      });
    };
    auto zero = join(0, store), one = join(1, std::make_shared<RelayingStore>(store, relay_));
    return {zero.get(), one.get()};
  }

  Relay relay_;
};

TEST_P(Tampering, EndsTheJobAndChangesNoSum) {
  auto groups = two_ranks();
  const auto sum = [](ProcessGroup& group) {
    std::vector<float> numbers(50'000, 1.0f);
    group.all_reduce(testing::buffer(numbers), ReduceOp::sum).wait();
    EXPECT_THAT(numbers, Each(2.0f));
  };
  EXPECT_THAT(testing::errors_on_all_ranks(groups, sum), Each(""));
  EXPECT_EQ(relay_.damaged(), 0);
  relay_.do_damage(GetParam());
  const auto errors = testing::errors_on_all_ranks(groups, sum);
  EXPECT_GT(relay_.damaged(), 0);
  EXPECT_THAT(errors, Each(HasSubstr(" lost ("))) << "an error on both";
  EXPECT_THAT(errors, ::testing::Contains(HasSubstr("has a wrong tag: changed on the way, or forged")));
}

TEST_P(Tampering, OfAMessageIsFound) {
  auto groups = two_ranks();
  relay_.do_damage(GetParam());
  const auto errors = testing::errors_on_all_ranks(groups, [](ProcessGroup& group) {
    std::vector<float> numbers(10, static_cast<float>(group.rank()));
    if (group.rank() == 1) return group.send(testing::buffer(numbers), 0, 3).wait();
    group.receive(testing::buffer(numbers), 1, 3).wait();
    // What arrives is true: the first of two equal messages, or what came before the damage. Nothing comes after it.
    EXPECT_EQ(numbers[0], 1);
    group.receive(testing::buffer(numbers), 1, 3).wait();
    ADD_FAILURE() << "received twice";
  });
  EXPECT_THAT(errors[0], HasSubstr(" lost ("));
}

INSTANTIATE_TEST_SUITE_P(All, Tampering, ::testing::Values(Damage::flip, Damage::repeat),
                         [](const auto& info) { return info.param == Damage::flip ? "flip" : "repeat"; });

// The two ends of a connection with tags, as a rank has it and as somebody on the way does.
struct Tapped {
  std::vector<PeerSocket> rank;
  FileDescriptor tap;
  explicit Tapped(const std::string& outgoing = std::string(32, 'a'),
                  const std::string& incoming = std::string(32, 'b'))
      : rank(2) {
    int ends[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    rank[1] = {FileDescriptor(ends[0]), MessageMac(outgoing), MessageMac(incoming)};
    tap = FileDescriptor(ends[1]);
  }
};

// What a rank sends for one transfer of these bytes.
std::string transfer(std::string_view bytes) {
  Tapped sender;
  SocketTransfers transfers(sender.rank);
  transfers.send(1, 0, bytes.data(), bytes.size());
  EXPECT_EQ(transfers.wait(TimeLimit(20s)).result, Transfers::Result::done);
  std::string wire(bytes.size() + 100, '\0');
  wire.resize(static_cast<std::size_t>(::recv(sender.tap.get(), wire.data(), wire.size(), 0)));
  return wire;
}

// What a rank takes for a transfer of at most five bytes.
Transfers::Result result_of(std::string_view wire) {
  Tapped receiver(std::string(32, 'b'), std::string(32, 'a'));
  EXPECT_EQ(::send(receiver.tap.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  receiver.tap.reset();
  SocketTransfers transfers(receiver.rank);
  std::array<char, 5> place;
  transfers.receive(1, 0, place.data(), place.size());
  return transfers.wait(TimeLimit(20s)).result;
}

TEST(TamperingWithTransfers, NoChangedBitPasses) {
  for (const std::string& bytes : {std::string(), std::string("1"), std::string("12345")}) {
    const std::string wire = transfer(bytes);
    EXPECT_EQ(wire.size(), 8 + bytes.size() + MessageMac::kTagBytes);
    EXPECT_EQ(result_of(wire), Transfers::Result::done);
    for (std::size_t bit = 0; bit < 8 * wire.size(); ++bit) {
      std::string changed = wire;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      // A wrong length may ask for bytes that never come, or for too many.
      const Transfers::Result result = result_of(changed);
      EXPECT_NE(result, Transfers::Result::done) << bit;
      if (bit >= 64) {
        EXPECT_EQ(result, Transfers::Result::forged) << bit;
      }
    }
    for (std::size_t size = 0; size < wire.size(); ++size) {
      EXPECT_EQ(result_of(wire.substr(0, size)), Transfers::Result::broken);
    }
  }
}

// Memory is taken only for a number of bytes that the other rank has sent.
TEST(TamperingWithFrames, AreFoundBeforeTheirLengthCounts) {
  Tapped sender;
  {
    ControlChannel channel(0, std::move(sender.rank), 20s);
    channel.send(1, 5, {{.count = 42}, std::vector<std::byte>(9)}, TimeLimit(20s));
  }
  std::string wire(100'000, '\0');
  wire.resize(static_cast<std::size_t>(::recv(sender.tap.get(), wire.data(), wire.size(), 0)));
  // Gives the number of messages that arrive, and the failure.
  const auto receive = [](const std::string& bytes) {
    Tapped receiver(std::string(32, 'b'), std::string(32, 'a'));
    EXPECT_EQ(::send(receiver.tap.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ControlChannel channel(0, std::move(receiver.rank), 20s);
    std::promise<std::string> told;
    std::once_flag first;
    channel.watch([&](const RankFailure& failure) { std::call_once(first, [&] { told.set_value(failure.reason); }); });
    const bool arrived = channel.receive(1, 5, TimeLimit(20s), [] { return false; }).has_value();
    receiver.tap.reset();
    std::future<std::string> reason_told = told.get_future();
    while (!channel.departed(1) && reason_told.wait_for(1ms) != std::future_status::ready) continue;
    const std::string reason = channel.departed(1) ? "" : reason_told.get();
    channel.watch(nullptr);
    return std::pair(arrived, reason);
  };
  EXPECT_EQ(receive(wire), std::pair(true, std::string()));
  for (std::size_t at = 0; at < wire.size(); at += 7) {
    std::string changed = wire;
    changed[at] ^= 16;
    const auto [arrived, reason] = receive(changed);
    if (!arrived) {
      EXPECT_EQ(reason, "rank 1 lost (a message on its connection has a wrong tag: changed on the way, or forged)")
          << at;
    }
  }
  std::string huge = wire;
  huge.replace(8, 8, std::string("\0\0\0\0\0\1\0\0", 8));  // a terabyte
  EXPECT_FALSE(receive(huge).first);
}

}  // namespace
}  // namespace lockstep
