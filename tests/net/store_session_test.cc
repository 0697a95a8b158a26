#include "lockstep/net/store_session.h"

#include <gtest/gtest.h>

#include "tests/expect_error.h"

namespace lockstep {
namespace {

const std::string kSecret = "the secret of this job", kNonce(32, 'n'), kClientNonce(32, 'c');

std::string proof(const std::string& secret = kSecret, const std::string& nonce = kNonce) {
  return kClientNonce + store_client_hmac(secret, nonce, kClientNonce);
}

std::string take_output(StoreSession& session) {
  const std::string output(session.output());
  session.sent(output.size());
  return output;
}

// The tags of both sides.
struct Tags {
  MessageMac requests = store_request_tags(kSecret, kNonce, kClientNonce);
  MessageMac replies = store_reply_tags(kSecret, kNonce, kClientNonce);
};

// A session after its handshake.
StoreSession admitted_session() {
  StoreSession session(kSecret, kNonce);
  take_output(session);
  session.receive(proof());
  take_output(session);
  EXPECT_TRUE(session.admitted());
  return session;
}

TEST(StoreSession, BothSidesProveThatTheyKnowTheSecret) {
  StoreSession session(kSecret, kNonce);
  EXPECT_EQ(take_output(session), std::string(kStoreMagic) + kNonce);
  for (const char c : proof()) {
    EXPECT_FALSE(session.admitted());
    session.receive({&c, 1});
  }
  EXPECT_TRUE(session.admitted());
  EXPECT_EQ(take_output(session), "a" + store_server_hmac(kSecret, kNonce, kClientNonce));
  EXPECT_NE(store_server_hmac(kSecret, kNonce, kClientNonce), store_client_hmac(kSecret, kNonce, kClientNonce));
}

TEST(StoreSession, AWrongProofIsRefusedAndTeachesNothing) {
  std::string flipped = proof();
  flipped.back() ^= 1;
  for (const std::string& wrong :
       {proof("another secret, a long one"), proof(""), proof(kSecret, std::string(32, 'm')), flipped,
        kClientNonce + store_server_hmac(kSecret, kNonce, kClientNonce), std::string(64, '\0')}) {
    StoreSession session(kSecret, kNonce);
    take_output(session);
    session.receive(wrong);
    EXPECT_TRUE(session.refused());
    EXPECT_EQ(take_output(session), "r" + std::string(32, '\0'));
    EXPECT_FALSE(session.next_request());
    EXPECT_FALSE(session.wants_input());
    EXPECT_ERROR(session.receive("x"), "from a client that was refused");
  }
}

// A recorded handshake is useless: the next one has another nonce.
TEST(StoreSession, AReplayedProofIsRefused) {
  StoreSession session(kSecret, std::string(32, 'o'));
  take_output(session);
  session.receive(proof());
  EXPECT_TRUE(session.refused());
}

TEST(StoreSession, NothingMayFollowTheProofBeforeTheAnswer) {
  StoreSession session(kSecret, kNonce);
  EXPECT_ERROR(session.receive(proof() + encode(StoreRequest{.key = "k"})),
               "before the end of the handshake, expected 64");
}

TEST(StoreSession, RequestsAreServedOneByOne) {
  StoreSession session = admitted_session();
  Tags tags;
  const StoreRequest set{.operation = StoreOperation::set, .key = "k", .value = "v"};
  const StoreRequest get{.operation = StoreOperation::get, .timeout_ms = 7, .key = "k"};
  const std::string first = with_tag(encode(set), tags.requests);
  session.receive(first + with_tag(encode(get), tags.requests));
  EXPECT_EQ(session.next_request(), set);
  EXPECT_FALSE(session.next_request()) << "a reply is due";
  session.reply({});
  EXPECT_FALSE(session.next_request()) << "the reply has not been read";
  EXPECT_EQ(take_output(session), with_tag(encode(StoreReply{}), tags.replies));
  EXPECT_EQ(session.next_request(), get);
}

// Somebody between the two can end the connection, and no more.
TEST(StoreSession, ARequestThatWasChangedOrRepeatedIsRefused) {
  const StoreRequest set{.operation = StoreOperation::set, .key = "k", .value = "v"};
  const std::string wire = [&] {
    Tags tags;
    return with_tag(encode(set), tags.requests);
  }();
  for (std::size_t bit = 0; bit < 8 * wire.size(); ++bit) {
    std::string changed = wire;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    StoreSession session = admitted_session();
    try {
      session.receive(changed);
      EXPECT_FALSE(session.next_request()) << "at most, it waits for more";
    } catch (const Error&) {
    }
  }
  StoreSession session = admitted_session();
  session.receive(wire + wire);
  EXPECT_EQ(session.next_request(), set);
  session.reply({});
  take_output(session);
  EXPECT_ERROR(session.next_request(), "store: a message has a wrong tag: changed on the way, or forged");
  EXPECT_NE(Tags().requests.finish(), Tags().replies.finish());
}

TEST(StoreProtocol, MessagesComeBack) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{300}, kLongestStoreValue}) {
    const StoreRequest request{.operation = StoreOperation::add,
                               .timeout_ms = 0xfffefdfc,
                               .key = std::string(1024, 'k'),
                               .value = std::string(size, '\xff')};
    std::string bytes = encode(request) + "rest";
    EXPECT_EQ(take_request(bytes), request);
    EXPECT_EQ(bytes, "rest");
    const StoreReply reply{.status = StoreStatus::failed, .value = std::string(size, '\0')};
    bytes = encode(reply) + "rest";
    EXPECT_EQ(take_reply(bytes), reply);
    EXPECT_EQ(bytes, "rest");
  }
}

TEST(StoreProtocol, HalfAMessageIsWaitedFor) {
  const std::string request = encode(StoreRequest{.key = "key", .value = "value"}),
                    reply = encode(StoreReply{.value = "value"});
  for (std::size_t n = 0; n < request.size(); ++n) {
    std::string part = request.substr(0, n);
    EXPECT_FALSE(take_request(part));
    EXPECT_EQ(part.size(), n);
  }
  for (std::size_t n = 0; n < reply.size(); ++n) {
    std::string part = reply.substr(0, n);
    EXPECT_FALSE(take_reply(part));
  }
}

std::string header(int operation, std::uint32_t key, std::uint32_t value) {
  std::string bytes{static_cast<char>(operation), 0, static_cast<char>(key), static_cast<char>(key >> 8)};
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes + std::string(4, '\0');
}

TEST(StoreProtocol, NonsenseIsRefusedAtItsFirstBytes) {
  const auto take = [](std::string bytes) { return take_request(bytes); };
  EXPECT_FALSE(take(header(1, 1, 0)));
  EXPECT_ERROR(take(header(0, 1, 0)), "a request of kind 0, expected from 1 to 4");
  EXPECT_ERROR(take(header(5, 1, 0)), "a request of kind 5");
  EXPECT_ERROR(take(header(1, 0, 0)), "a key of 0 bytes, expected from 1 to 1024");
  EXPECT_ERROR(take(header(1, 1025, 0)), "a key of 1025 bytes");
  EXPECT_ERROR(take(header(1, 1, (1 << 20) + 1)), "a value of 1048577 bytes, expected at most 1048576");
  EXPECT_ERROR(take(header(1, 1, 0xffffffff)), "a value of 4294967295 bytes");
  EXPECT_ERROR(take("GET / HTTP/1.1\r\n\r\n"), "a request of kind");
  std::string reply("\x04\0\0\0\0\0\0\0", 8);
  EXPECT_ERROR(take_reply(reply), "a reply with status 4, expected from 1 to 3");
  reply = std::string("\x01\0\0\0\xff\xff\xff\xff", 8);
  EXPECT_ERROR(take_reply(reply), "a reply of 4294967295 bytes, expected at most 1048576");
}

}  // namespace
}  // namespace lockstep
