#include "lockstep/net/peer_handshake.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lockstep/base/message_mac.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

TEST(PeerHandshake, BothSidesRecognizeEachOther) {
  PeerHandshake client("key", 2, 0, 1), server("key", 2, 0, 1);
  std::uint32_t rank = 0, connection = 0;
  ASSERT_TRUE(PeerHandshake::parse_hello(client.hello(), rank, connection));
  EXPECT_EQ(rank, 2u);
  EXPECT_EQ(connection, 1u);
  ASSERT_TRUE(client.check_answer(server.answer(client.hello())));
  EXPECT_TRUE(server.check_proof(client.proof()));
  EXPECT_EQ(client.key_of_client(), server.key_of_client());
  EXPECT_EQ(client.key_of_server(), server.key_of_server());
}

// What is sent on one connection is useless on another, and in the other direction.
TEST(PeerHandshake, EachDirectionOfEachConnectionHasAKeyOfItsOwn) {
  std::set<std::string> keys;
  for (int i = 0; i < 3; ++i) {
    PeerHandshake client("key", 2, 0, 1), server("key", 2, 0, 1);
    ASSERT_TRUE(client.check_answer(server.answer(client.hello())));
    for (const std::string& key : {client.key_of_client(), client.key_of_server(), client.proof()}) {
      EXPECT_EQ(key.size(), MessageMac::kKeyBytes);
      EXPECT_TRUE(keys.insert(key).second);
    }
  }
}

TEST(PeerHandshake, NothingElsePasses) {
  PeerHandshake client("key", 2, 0, 1);
  std::uint32_t rank = 0, connection = 0;
  EXPECT_FALSE(PeerHandshake::parse_hello(std::string(PeerHandshake::kHelloBytes, 'x'), rank, connection));
  EXPECT_FALSE(PeerHandshake::parse_hello(client.hello().substr(1), rank, connection));
  EXPECT_FALSE(PeerHandshake::parse_hello(client.hello() + "x", rank, connection));
  // Another key, another rank, another connection.
  for (PeerHandshake server :
       {PeerHandshake("kez", 2, 0, 1), PeerHandshake("key", 1, 0, 1), PeerHandshake("key", 2, 0, 0)}) {
    EXPECT_FALSE(client.check_answer(server.answer(client.hello())));
    EXPECT_FALSE(server.check_proof(client.proof()));
  }
  // A recorded proof from an earlier handshake; the server's own answer.
  PeerHandshake recorded_server("key", 2, 0, 1), server("key", 2, 0, 1);
  const std::string answer = recorded_server.answer(client.hello());
  ASSERT_TRUE(client.check_answer(answer));
  const std::string second = server.answer(client.hello());
  EXPECT_FALSE(server.check_proof(client.proof()));
  EXPECT_FALSE(server.check_proof(second.substr(16)));
}

// A stranger may send any bytes of the right number. No message but the true one passes.
TEST(PeerHandshake, DamagedMessagesAreRefused) {
  Dice dice(1);
  // As many bytes as the connector waits for.
  const auto damaged = [&](const std::string& message) {
    std::string text = mutated(message, dice);
    text.resize(message.size(), dice.byte());
    return text;
  };
  PeerHandshake client("key", 2, 0, 1), server("key", 2, 0, 1);
  const std::string hello = client.hello(), answer = server.answer(hello);
  ASSERT_TRUE(client.check_answer(answer));
  const std::string proof = client.proof();
  int parsed = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string said = damaged(hello);
    std::uint32_t rank = 0, connection = 0;
    if (PeerHandshake::parse_hello(said, rank, connection)) {
      ++parsed;
      EXPECT_EQ(said.substr(0, 8), hello.substr(0, 8));
      // The two numbers are in it, with any values. Only the true ones lead to the key's answer.
      PeerHandshake other("key", rank, 0, connection);
      EXPECT_EQ(client.check_answer(other.answer(said)), said == hello);
    }
    const std::string answered = damaged(answer), proved = damaged(proof);
    EXPECT_EQ(client.check_answer(answered), answered == answer);
    EXPECT_EQ(server.check_proof(proved), proved == proof);
    const std::string shorter = answer.substr(0, dice.below(answer.size()));
    EXPECT_FALSE(client.check_answer(shorter));
    EXPECT_FALSE(server.check_proof(proof.substr(0, dice.below(proof.size()))));
  }
  EXPECT_GT(parsed, 500);
}

}  // namespace
}  // namespace lockstep
