#include "lockstep/net/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lockstep/base/warning.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/expect_error.h"
#include "tests/free_port.h"
#include "tests/net/raw_client.h"
#include "tests/wait_until.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

constexpr auto kStoreTimeout = 20s;

std::unique_ptr<TcpStore> connect(const TcpStoreServer& server, const std::string& secret = "") {
  return std::make_unique<TcpStore>(
      TcpStoreOptions{.port = server.port(), .secret = secret, .connect_timeout = kStoreTimeout});
}

TEST(TcpStore, WhatOneSetsAnotherGets) {
  const TcpStoreServer server;
  const auto a = connect(server), b = connect(server);
  a->set("key", "value");
  EXPECT_EQ(b->get("key", 0ms), "value");
  a->set("key", "other");
  EXPECT_EQ(b->get("key", 0ms), "other");
  EXPECT_TRUE(b->contains("key"));
  EXPECT_FALSE(b->contains("Key"));
  const std::string zeros("\0\n\xff\0", 4);
  a->set(zeros, zeros);
  EXPECT_EQ(b->get(zeros, 0ms), zeros);
  a->set("empty", "");
  EXPECT_EQ(b->get("empty", 0ms), "");
}

TEST(TcpStore, GetWaitsForSetAndForAdd) {
  const TcpStoreServer server;
  const auto a = connect(server), b = connect(server);
  std::thread waiter([&] {
    EXPECT_EQ(b->get("late", kStoreTimeout), "now");
    EXPECT_EQ(b->get("count", kStoreTimeout), "3");
  });
  std::this_thread::sleep_for(20ms);
  a->set("late", "now");
  std::this_thread::sleep_for(20ms);
  a->add("count", 3);
  waiter.join();
}

TEST(TcpStore, GetThatWaitsInVainNamesTheKey) {
  const TcpStoreServer server;
  const auto store = connect(server);
  EXPECT_ERROR(store->get("nothing", 0ms), "no process set \"nothing\" within 0 s");
  EXPECT_ERROR(store->get("nothing", 30ms), "no process set \"nothing\" within 0.03 s");
  store->set("something", "1");
  EXPECT_EQ(store->get("something", 0ms), "1") << "the connection is still of use";
}

TEST(TcpStore, AWaitingGetHoldsUpNobody) {
  const TcpStoreServer server;
  const auto store = connect(server);
  std::thread waiter([&] { EXPECT_EQ(store->get("late", kStoreTimeout), "1"); });
  for (int i = 0; i < 100; ++i) store->set("other", "1");
  store->set("late", "1");
  waiter.join();
}

TEST(TcpStore, AddCountsEachOnce) {
  const TcpStoreServer server;
  std::vector<std::thread> threads;
  std::atomic<int> last{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto store = connect(server);
      for (int i = 0; i < 100; ++i) {
        if (store->add("count", 1) == 800) ++last;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last, 1);
  const auto store = connect(server);
  EXPECT_EQ(store->add("count", -801), -1);
  EXPECT_EQ(store->get("count", 0ms), "-1");
}

TEST(TcpStore, AddToWhatIsNoNumberIsRefused) {
  const TcpStoreServer server;
  const auto store = connect(server);
  store->set("word", "abc");
  EXPECT_ERROR(store->add("word", 1), "the store's \"word\" is \"abc\", expected an integer");
  store->add("large", INT64_MAX);
  EXPECT_ERROR(store->add("large", 1), "does not fit in 64 bits");
  EXPECT_EQ(store->add("large", -1), INT64_MAX - 1);
}

TEST(TcpStore, LimitsOfKeysAndValues) {
  const TcpStoreServer server;
  const auto store = connect(server);
  const std::string key(1024, 'k'), value(1 << 20, 'v');
  store->set(key, value);
  EXPECT_EQ(store->get(key, 0ms), value);
  EXPECT_ERROR(store->set(key + "k", ""), "a key of 1025 bytes, expected from 1 to 1024");
  EXPECT_ERROR(store->set("", ""), "a key of 0 bytes");
  EXPECT_ERROR(store->set("key", value + "v"), "the value of \"key\" has 1048577 bytes, expected at most 1048576");
}

TEST(TcpStore, TheServersMemoryIsBounded) {
  const TcpStoreServer server;
  const auto store = connect(server);
  const std::string value(1 << 20, 'v');
  const auto fill = [&] {
    for (int i = 0; i < 1000; ++i) store->set(std::to_string(i), value);
  };
  EXPECT_ERROR(fill(), "store: full");
  EXPECT_EQ(store->get("0", 0ms), value);
  store->set("0", "less");
}

TEST(TcpStore, WaitsForAServerThatComesLater) {
  const int port = free_port();
  std::unique_ptr<TcpStore> store;
  std::thread client(
      [&] { store = std::make_unique<TcpStore>(TcpStoreOptions{.port = port, .connect_timeout = kStoreTimeout}); });
  std::this_thread::sleep_for(50ms);
  const TcpStoreServer server({.port = port});
  client.join();
  store->set("key", "value");
}

TEST(TcpStore, AServerThatIsNotThereIsNamed) {
  const int port = free_port();
  EXPECT_ERROR(TcpStore({.port = port, .connect_timeout = 50ms}),
               fmt::format("cannot reach 127.0.0.1:{} (127.0.0.1:{}: Connection refused)", port, port));
  EXPECT_ERROR(TcpStore({.host = "no such host", .port = port, .connect_timeout = 50ms}), "host \"no such host\"");
  EXPECT_ERROR(TcpStore({.port = 0}), "port 0, expected from 1 to 65535");
}

TEST(TcpStore, AServerThatGoesFailsWhoWaits) {
  auto server = std::make_unique<TcpStoreServer>();
  const int port = server->port();
  TcpStore store({.port = port, .timeout = 100ms});
  std::thread waiter([&] {
    EXPECT_ERROR(store.get("key", kStoreTimeout), fmt::format("\"key\": lost the store at 127.0.0.1:{}", port));
  });
  std::this_thread::sleep_for(50ms);
  server.reset();
  waiter.join();
  EXPECT_ERROR(store.set("key", ""), "lost the store");
  // The client finds a new server; on a busy machine, in one of several calls.
  server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.port = port});
  EXPECT_TRUE(wait_until(
      [&] {
        try {
          store.set("key", "");
          return true;
        } catch (const ConnectionError&) {
          return false;
        }
      },
      kStoreTimeout));
}

// Like a frozen process, the listener accepts connections and stays silent.
TEST(TcpStore, AServerThatSaysNothingIsNotWaitedForForEver) {
  const FileDescriptor silent = listen_at(resolve_host("127.0.0.1", 0).front());
  const int port = local_address(silent).port();
  EXPECT_ERROR(TcpStore({.port = port, .connect_timeout = 50ms}), "no answer in time while receiving");
}

TEST(TcpStore, SomethingElseThatListensIsToldApart) {
  const FileDescriptor other = listen_at(resolve_host("127.0.0.1", 0).front());
  std::thread greeter([&] {
    pollfd item{other.get(), POLLIN, 0};
    ::poll(&item, 1, 20'000);
    const FileDescriptor client(::accept(other.get(), nullptr, nullptr));
    const std::string_view greeting = "220 mail.example.com ESMTP\r\n";
    ASSERT_GT(::send(client.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
  });
  EXPECT_ERROR(TcpStore({.port = local_address(other).port(), .connect_timeout = kStoreTimeout}),
               "sent \"220 mail.example\", expected \"lockstep store 2\": something else listens there");
  greeter.join();
}

TEST(TcpStoreServer, ListensOnLoopbackAtAFreePort) {
  const TcpStoreServer server;
  EXPECT_GT(server.port(), 0);
  EXPECT_EQ(server.address(), fmt::format("127.0.0.1:{}", server.port()));
}

TEST(TcpStoreServer, APortInUseIsNamed) {
  const TcpStoreServer server;
  EXPECT_ERROR(TcpStoreServer({.port = server.port()}),
               fmt::format("cannot listen at {}: Address already in use; choose another port", server.address()));
  EXPECT_ERROR(TcpStoreServer({.port = 65536}), "port 65536, expected from 0 to 65535");
}

TEST(TcpStoreServer, SaysThatItListensAtAllAddresses) {
  std::vector<std::string> said;
  const WarningHandler before =
      set_warning_handler([&](const Warning& w) { said.push_back(w.kind + ": " + w.message); });
  const std::string secret = "a secret of the job";
  for (const char* host : {"203.0.113.7", "0.0.0.0", "127.0.0.1"}) {
    const auto server = listen_for_hosts(host, 0, secret);
    const bool at_all = host != std::string("127.0.0.1");
    ASSERT_EQ(said.size(), at_all ? 1u : 0u) << host;
    if (at_all) {
      EXPECT_EQ(said[0].find(fmt::format("listening at all addresses: the job's store listens at 0.0.0.0:{}, at every "
                                         "address of this machine, because {} ",
                                         server->port(), host)),
                0u)
          << said[0];
      EXPECT_NE(said[0].find("to choose one, give its numeric address as MASTER_ADDR or --master-addr"),
                std::string::npos);
    }
    said.clear();
  }
  set_warning_handler(before);
}

TEST(Secret, WithoutOneNothingButLoopback) {
  EXPECT_ERROR(TcpStoreServer({.host = "0.0.0.0"}), "without a secret it listens only on loopback, not at 0.0.0.0:0");
  EXPECT_ERROR(TcpStoreServer({.host = "0.0.0.0"}), "set LOCKSTEP_SECRET");
  EXPECT_ERROR(TcpStore({.host = "192.0.2.1", .port = 29500}),
               "192.0.2.1:29500 is not loopback and there is no secret");
  const TcpStoreServer server({.host = "0.0.0.0", .secret = "a secret of the job"});
  connect(server, "a secret of the job")->set("key", "value");
}

TEST(Secret, WhoDoesNotKnowItIsRefused) {
  const TcpStoreServer server({.secret = "a secret of the job"});
  EXPECT_ERROR(connect(server, "another secret here"),
               "does not accept this process's secret: it belongs to another job");
  EXPECT_ERROR(connect(server), "does not accept a client without a secret");
  EXPECT_EQ(connect(server, "a secret of the job")->add("count", 1), 1);

  const TcpStoreServer open;
  EXPECT_ERROR(connect(open, "a secret of the job"), "does not accept this process's secret");
}

TEST(Secret, AServerThatDoesNotKnowItIsRefused) {
  const FileDescriptor listener = listen_at(resolve_host("127.0.0.1", 0).front());
  std::thread impostor([&] {
    pollfd item{listener.get(), POLLIN, 0};
    ::poll(&item, 1, 20'000);
    const FileDescriptor client(::accept(listener.get(), nullptr, nullptr));
    const std::string greeting = "lockstep store 2" + std::string(32, 'n');
    ASSERT_GT(::send(client.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
    std::string proof(64, '\0');
    ASSERT_EQ(::recv(client.get(), proof.data(), proof.size(), MSG_WAITALL), 64);
    // Its best attempt: send the client's own proof back.
    const std::string answer = "a" + proof.substr(32);
    ASSERT_GT(::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
  });
  EXPECT_ERROR(
      TcpStore(
          {.port = local_address(listener).port(), .secret = "a secret of the job", .connect_timeout = kStoreTimeout}),
      "does not know the job's secret");
  impostor.join();
}

}  // namespace
}  // namespace lockstep
