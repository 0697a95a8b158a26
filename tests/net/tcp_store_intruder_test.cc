// Malicious clients at the port of a store that others use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "lockstep/net/store_protocol.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/expect_error.h"
#include "tests/net/raw_client.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

const std::string kJobSecret = "the secret of this job";

class Intruder : public ::testing::Test {
 protected:
  const TcpStoreServer server_{{.secret = kJobSecret, .handshake_timeout = 2s}};

  void expect_still_serving() {
    TcpStore store({.port = server_.port(), .secret = kJobSecret, .connect_timeout = 20s});
    const std::int64_t before = store.add("count", 0);
    EXPECT_EQ(store.add("count", 1), before + 1);
  }
  struct Admitted : RawClient {
    using RawClient::RawClient;
    MessageMac requests;
    void ask(const StoreRequest& request) { send(with_tag(encode(request), requests)); }
  };
  // Completes the handshake.
  std::unique_ptr<Admitted> admitted_client() {
    auto client = std::make_unique<Admitted>(server_.port());
    const std::string nonce(32, 'c'), greeting = client->receive(kStoreGreetingBytes);
    const std::string server_nonce = greeting.substr(kStoreMagic.size());
    client->send(nonce + store_client_hmac(kJobSecret, server_nonce, nonce));
    EXPECT_EQ(client->receive(kStoreAnswerBytes).substr(0, 1), "a");
    client->requests = store_request_tags(kJobSecret, server_nonce, nonce);
    return client;
  }
};

TEST_F(Intruder, WhoSaysNothingIsClosed) {
  RawClient silent(server_.port());
  EXPECT_TRUE(silent.is_closed());
  expect_still_serving();
}

TEST_F(Intruder, WhoIsTooSlowIsClosed) {
  RawClient slow(server_.port());
  slow.receive(kStoreGreetingBytes);
  bool taken = true;
  for (int i = 0; i < 2000 && taken; ++i) {
    taken = slow.send("x");
    std::this_thread::sleep_for(50ms);
    if (slow.readable(0)) break;
  }
  EXPECT_TRUE(slow.is_closed());
  expect_still_serving();
}

TEST_F(Intruder, WhoSendsGarbageIsRefused) {
  RawClient garbage(server_.port());
  garbage.receive(kStoreGreetingBytes);
  garbage.send(std::string(64, 'x'));
  EXPECT_EQ(garbage.receive(100), "r" + std::string(32, '\0'));
  EXPECT_TRUE(garbage.is_closed());
  RawClient too_much(server_.port());
  too_much.send(std::string(100'000, 'x'));
  EXPECT_TRUE(too_much.is_closed());
  expect_still_serving();
}

TEST_F(Intruder, AReplayedHandshakeIsRefused) {
  // Recorded from the wire: the messages of a client of the job.
  RawClient heard(server_.port());
  const std::string nonce(32, 'c'), greeting = heard.receive(kStoreGreetingBytes);
  const std::string said = nonce + store_client_hmac(kJobSecret, greeting.substr(kStoreMagic.size()), nonce);
  heard.send(said);
  EXPECT_EQ(heard.receive(kStoreAnswerBytes).substr(0, 1), "a");

  RawClient replay(server_.port());
  EXPECT_NE(replay.receive(kStoreGreetingBytes), greeting);
  replay.send(said);
  EXPECT_EQ(replay.receive(kStoreAnswerBytes).substr(0, 1), "r");
  EXPECT_TRUE(replay.is_closed());
}

TEST_F(Intruder, HugeLengthsAreRefusedAtOnce) {
  const auto client = admitted_client();
  client->send(std::string("\x01\0\xff\xff\xff\xff\xff\xff\0\0\0\0", 12));
  EXPECT_TRUE(client->is_closed());
  expect_still_serving();
}

TEST_F(Intruder, ManyHalfOpenConnectionsKeepNobodyOut) {
  std::vector<std::unique_ptr<RawClient>> half_open;
  for (int i = 0; i < 300; ++i) half_open.push_back(std::make_unique<RawClient>(server_.port()));
  expect_still_serving();
}

TEST_F(Intruder, WithoutDescriptorsTheServerWaitsForSome) {
  TcpStore store({.port = server_.port(), .secret = kJobSecret});
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = 100;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  {
    // This process has both ends of each connection.
    std::vector<std::unique_ptr<RawClient>> half_open;
    try {
      for (int i = 0; i < 200; ++i) half_open.push_back(std::make_unique<RawClient>(server_.port()));
    } catch (const std::runtime_error&) {
    }
    store.set("key", "value");
    EXPECT_EQ(store.get("key", 0ms), "value");
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_still_serving();
}

// The memory that this process has.
std::size_t resident_bytes() {
  std::size_t mapped = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> mapped >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// The replies fill the connection and wait there. The server's memory does not grow, and no other client waits.
TEST_F(Intruder, WhoDoesNotReadItsRepliesHoldsUpOnlyItself) {
  TcpStore store({.port = server_.port(), .secret = kJobSecret});
  store.set("large", std::string(1 << 20, 'x'));
  const auto client = admitted_client();
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 100; ++i) client->ask({.operation = StoreOperation::get, .key = "large"});
  for (int i = 0; i < 100; ++i) store.set("key", "value");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those keep more than the program does
  EXPECT_LT(resident_bytes(), before + (50 << 20)) << "of 100 MiB of replies";
#else
  static_cast<void>(before);
#endif
  // All of them are served in the end.
  constexpr std::size_t kAll = 100 * ((1 << 20) + 8 + MessageMac::kTagBytes);
  EXPECT_EQ(client->receive(kAll).size(), kAll);
}

TEST_F(Intruder, WhoGoesWhileItWaitsIsForgotten) {
  for (int i = 0; i < 100; ++i) {
    admitted_client()->ask({.operation = StoreOperation::get, .timeout_ms = 1'000'000, .key = "never"});
  }
  expect_still_serving();
  TcpStore store({.port = server_.port(), .secret = kJobSecret});
  store.set("never", "1");
}

}  // namespace
}  // namespace lockstep
