#include "lockstep/net/store_protocol.h"
#include "lockstep/net/store_session.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// What a client that knows the secret sends; what a server sends if the number of bytes is even.
Reader store() {
  const std::string requests = encode(StoreRequest{.operation = StoreOperation::set, .key = "k", .value = "v"}) +
                               encode(StoreRequest{.operation = StoreOperation::get, .timeout_ms = 7, .key = "k"}) +
                               encode(StoreRequest{.operation = StoreOperation::add, .key = "n", .value = "1"}) +
                               encode(StoreRequest{.operation = StoreOperation::contains, .key = "n2"});
  const std::string replies = encode(StoreReply{.value = "v1"}) + encode(StoreReply{.status = StoreStatus::missing});
  return {.read =
              [](const std::string& bytes) {
                const std::string secret = "the secret of this job", nonce(kStoreNonceBytes, 'n');
                if (bytes.size() % 2 == 0) {  // so that each gets half of the inputs
                  std::string left = bytes;
                  while (take_reply(left)) {
                  }
                  return;
                }
                StoreSession session(secret, nonce);
                session.sent(session.output().size());
                const std::string mine(kStoreNonceBytes, 'c');
                session.receive(mine + store_client_hmac(secret, nonce, mine));
                session.sent(session.output().size());
                // The client makes the tags, which no mutation would.
                MessageMac tags = store_request_tags(secret, nonce, mine);
                std::string left = bytes;
                while (const auto sent = take_request(left)) {
                  session.receive(with_tag(encode(*sent), tags));
                  const auto request = session.next_request();
                  if (!request) return;
                  session.reply({.status = StoreStatus::ok, .value = request->value});
                  session.sent(session.output().size());
                }
              },
          .seeds = {requests, replies}};
}

}  // namespace lockstep::fuzz
