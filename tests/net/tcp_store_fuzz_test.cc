// Sends bytes that no client would send to the parser, to a session, and to a server. They may only be refused, or wait
// for more bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "lockstep/net/store_session.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "tests/mutate.h"
#include "tests/net/raw_client.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

const std::string kFuzzSecret = "the secret of this job";

class Fuzzer : public Dice {
 public:
  using Dice::Dice;

  StoreRequest request() {
    StoreRequest r{
        .operation = static_cast<StoreOperation>(1 + below(4)), .timeout_ms = 0, .key = bytes(20), .value = bytes(40)};
    if (r.key.empty()) r.key = "k";
    if (r.operation == StoreOperation::add && below(2)) r.value = std::to_string(below(1000));
    return r;
  }
  // Some requests, most often with a few changes. With `tags`, each has its tag, also where it was changed before: from
  // a member that goes wrong.
  std::string almost_requests(MessageMac tags = {}) {
    std::string text;
    const bool changed_before = below(2) == 0;
    for (std::size_t i = below(4) + 1; i > 0; --i) {
      std::string one = encode(request());
      if (tags && changed_before && below(2)) one = mutated(one, *this);
      text += tags ? with_tag(std::move(one), tags) : one;
    }
    return changed_before || below(4) == 0 ? text : mutated(text, *this);
  }
  std::string proof(const std::string& nonce, bool right) {
    const std::string client(kStoreNonceBytes, byte());
    std::string all = client + store_client_hmac(kFuzzSecret, nonce, client);
    if (!right) all[below(all.size())] ^= static_cast<char>(1 << below(8));
    return all;
  }
};

// Whether all bytes of `text` were parsed as requests. Encoding them again must give the same bytes.
bool parses(std::string text) {
  try {
    for (std::string before = text;; before = text) {
      const std::optional<StoreRequest> request = take_request(text);
      if (!request) return text.empty();
      EXPECT_LE(request->key.size(), kLongestStoreKey);
      EXPECT_LE(request->value.size(), kLongestStoreValue);
      std::string again = encode(*request);
      EXPECT_EQ(again + text, before);
    }
  } catch (const Error&) {
    return false;
  }
}

TEST(Fuzz, TheParserTakesWhatItWouldWriteAndNothingElse) {
  int taken = 0, refused = 0;
  Fuzzer fuzz(1);
  for (int i = 0; i < 200'000; ++i) ++(parses(i % 2 ? fuzz.almost_requests() : fuzz.bytes(64)) ? taken : refused);
  EXPECT_GT(taken, 10'000);
  EXPECT_GT(refused, 10'000);
}

TEST(Fuzz, RepliesAreTakenOrRefused) {
  Fuzzer fuzz(2);
  int taken = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text =
        encode(StoreReply{.status = static_cast<StoreStatus>(1 + fuzz.below(3)), .value = fuzz.bytes(20)});
    if (fuzz.below(2)) text[fuzz.below(text.size())] = fuzz.byte();
    if (fuzz.below(4) == 0) text = fuzz.bytes(40);
    try {
      if (const auto reply = take_reply(text)) {
        ++taken;
        EXPECT_LE(reply->value.size(), kLongestStoreValue);
      }
    } catch (const Error&) {
    }
  }
  EXPECT_GT(taken, 10'000);
}

TEST(Fuzz, NobodyIsAdmittedWithoutTheSecret) {
  Fuzzer fuzz(3);
  int admitted = 0;
  for (int i = 0; i < 50'000; ++i) {
    const std::string nonce(kStoreNonceBytes, fuzz.byte());
    StoreSession session(kFuzzSecret, nonce);
    session.sent(session.output().size());
    const bool right = fuzz.below(4) == 0;
    std::string text = fuzz.below(4) ? fuzz.proof(nonce, right) : fuzz.bytes(80);
    const bool proven =
        text.size() >= kStoreProofBytes &&
        text.substr(kStoreNonceBytes, 32) == store_client_hmac(kFuzzSecret, nonce, text.substr(0, kStoreNonceBytes));
    if (fuzz.below(2)) {
      text += fuzz.almost_requests(proven ? store_request_tags(kFuzzSecret, nonce, text.substr(0, kStoreNonceBytes))
                                          : MessageMac());
    }
    try {
      while (!text.empty()) {
        const std::size_t piece = std::min(text.size(), fuzz.below(70) + 1);
        session.receive(text.substr(0, piece));
        text.erase(0, piece);
        session.sent(session.output().size());
        while (const auto request = session.next_request()) {
          session.reply({.status = StoreStatus::ok, .value = request->value});
          session.sent(session.output().size());
        }
      }
    } catch (const Error&) {
    }
    ASSERT_LE(session.admitted(), proven);
    admitted += session.admitted();
  }
  EXPECT_GT(admitted, 1'000);
}

TEST(Fuzz, AServerGoesOnServing) {
  const TcpStoreServer server({.secret = kFuzzSecret, .handshake_timeout = 200ms});
  TcpStore store({.port = server.port(), .secret = kFuzzSecret});
  Fuzzer fuzz(4);
  std::vector<std::unique_ptr<RawClient>> lingering;
  for (int i = 0; i < 3'000; ++i) {
    auto client = std::make_unique<RawClient>(server.port());
    if (fuzz.below(2)) {
      client->send(fuzz.bytes(200));
    } else {
      const std::string greeting = client->receive(kStoreGreetingBytes);
      ASSERT_EQ(greeting.size(), kStoreGreetingBytes);
      const std::string nonce = greeting.substr(kStoreMagic.size()), proof = fuzz.proof(nonce, fuzz.below(4) != 0);
      client->send(proof);
      client->receive(kStoreAnswerBytes);
      client->send(fuzz.almost_requests(store_request_tags(kFuzzSecret, nonce, proof.substr(0, kStoreNonceBytes))));
    }
    if (fuzz.below(8) == 0) lingering.push_back(std::move(client));
    if (lingering.size() > 100) lingering.clear();
    if (i % 100 == 0) store.set(fmt::format("mine/{}", i), std::to_string(i));
  }
  for (int i = 0; i < 3'000; i += 100) EXPECT_EQ(store.get(fmt::format("mine/{}", i), 0ms), std::to_string(i));
}

}  // namespace
}  // namespace lockstep
