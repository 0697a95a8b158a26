// Foreign connections while a group is being formed: port scanners, garbage, silence, numbers of no rank, a wrong key.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "groups.h"
#include "lockstep/comm/socket_group.h"
#include "lockstep/net/peer_handshake.h"
#include "tests/expect_error.h"
#include "tests/net/raw_client.h"

namespace lockstep {
namespace {

using testing::buffer;

// The ports at which this process listens.
std::set<int> listening_ports() {
  std::set<std::string> own;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();  // "socket:[12345]"
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line, number, local, remote, state, skip, inode;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    fields >> number >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    if (state == "0A" && own.contains(inode)) ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

// Calls `visit(port)` once for every port that this process opens meanwhile.
class PortScanner {
 public:
  explicit PortScanner(std::function<void(int)> visit) : known_(listening_ports()) {
    thread_ = std::thread([this, visit = std::move(visit)] {
      while (!stop_) {
        for (int port : listening_ports()) {
          if (known_.insert(port).second) visit(port);
        }
      }
    });
  }
  ~PortScanner() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::set<int> known_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void expect_sum(std::vector<std::shared_ptr<ProcessGroup>>& groups) {
  testing::on_all_ranks(groups, [](ProcessGroup& group) {
    std::vector<std::int64_t> one{1};
    group.all_reduce(buffer(one), ReduceOp::sum).wait();
    EXPECT_EQ(one[0], group.size());
  });
}

// Delays a rank's address until the strangers have visited every port.
class WaitingStore final : public Store {
 public:
  WaitingStore(std::shared_ptr<Store> store, std::function<void()> wait)
      : store_(std::move(store)), wait_(std::move(wait)) {}

  void set(const std::string& key, std::string_view value) override {
    if (key.starts_with("address of rank")) wait_();
    store_->set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  bool contains(const std::string& key) override { return store_->contains(key); }

 private:
  std::shared_ptr<Store> store_;
  std::function<void()> wait_;
};

TEST(Strangers, GarbageSilenceAndResetsDoNotKeepRanksFromMeeting) {
  std::vector<RawClient> open, impossible;
  std::atomic<int> visits{0};
  PortScanner scanner([&](int port) {
    // Anybody can say hello before a key is proved: here with a rank or a connection that does not exist.
    for (const auto& [rank, connection] : {std::pair{3U, 0U}, {1U << 31, 0U}, {2U, 9U}, {2U, ~0U}}) {
      impossible.emplace_back(port);
      impossible.back().send(PeerHandshake("key", rank, 0, connection).hello());
    }
    for (const auto& words :
         {std::string(), std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), std::string(4096, '\xff')}) {
      open.emplace_back(port);
      open.back().send(words);
      RawClient(port).reset();  // gone before anyone can identify it
    }
    ++visits;
  });
  const auto store = testing::make_memory_store();
  const auto visited = std::make_shared<WaitingStore>(store, [&] {
    for (const TimeLimit limit(std::chrono::seconds(20)); visits < 3 && !limit.over();) std::this_thread::yield();
  });
  std::vector<std::shared_ptr<ProcessGroup>> groups(3);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      groups[static_cast<std::size_t>(r)] = make_socket_group(
          {.rank = r, .size = 3, .store = r == 2 ? visited : store, .key = "key", .address = "127.0.0.1"},
          GroupTimeouts{}, TransportChoice::tcp);
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(visits, 3);
  for (RawClient& client : impossible) EXPECT_EQ(client.receive(1), "") << "an answer";
  expect_sum(groups);
}

// More strangers than there were places follow an honest rank that is slow.
TEST(Strangers, ManyDoNotPushOutARankThatIsOnItsWay) {
  const auto store = testing::make_memory_store();
  auto zero = std::async(std::launch::async, [&] {
    return make_socket_group({.rank = 0, .size = 2, .store = store, .key = "key", .address = "127.0.0.1"},
                             {.silence = std::chrono::milliseconds(6'000)}, TransportChoice::tcp);
  });
  store->set("host of rank 1", "elsewhere");
  const std::string address = store->get("address of rank 0", std::chrono::seconds(20));
  const int port_of_zero = std::stoi(address.substr(address.find(' ') + 1));
  RawClient honest(port_of_zero);
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(std::make_unique<RawClient>(port_of_zero));
  strangers.back()->send(std::string(4096, '\xff'));
  EXPECT_TRUE(strangers.back()->is_closed()) << "all have been accepted";
  const PeerHandshake handshake("key", 1, 0, 0);
  EXPECT_TRUE(honest.send(handshake.hello()));
  EXPECT_EQ(honest.receive(PeerHandshake::kAnswerBytes).size(), PeerHandshake::kAnswerBytes);
  EXPECT_ERROR(zero.get(), "rank 1 lost");
}

TEST(Strangers, ARankWithAnotherKeyDoesNotGetIn) {
  const auto store = testing::make_memory_store();
  std::vector<std::string> errors(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      try {
        make_socket_group(
            {.rank = r, .size = 2, .store = store, .key = fmt::format("key {}", r), .address = "127.0.0.1"},
            {.silence = std::chrono::milliseconds(2'000)}, TransportChoice::tcp);
      } catch (const Error& error) {
        errors[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(errors[0], "rank 1 lost (did not join within 2 s) during rendezvous");
  EXPECT_EQ(errors[1], "rank 0 lost (not connected within 2 s) during rendezvous");
}

}  // namespace
}  // namespace lockstep
