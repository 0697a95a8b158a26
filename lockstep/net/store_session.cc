#include "lockstep/net/store_session.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hmac.h"

namespace lockstep {

StoreSession::StoreSession(std::string_view secret, std::string nonce)
    : secret_(secret), nonce_(std::move(nonce)), output_(std::string(kStoreMagic) + nonce_) {}

void StoreSession::receive(std::string_view bytes) {
  check(!refused(), "store: {} bytes from a client that was refused", bytes.size());
  input_.append(bytes);
  if (admitted()) return;
  check(input_.size() <= kStoreProofBytes, "store: {} bytes before the end of the handshake, expected {}",
        input_.size(), kStoreProofBytes);
  if (input_.size() < kStoreProofBytes) return;
  const std::string_view proof = input_;
  const std::string_view client_nonce = proof.substr(0, kStoreNonceBytes);
  const bool known =
      equal_in_constant_time(proof.substr(kStoreNonceBytes), store_client_hmac(secret_, nonce_, client_nonce));
  state_ = known ? State::admitted : State::refused;
  if (known) {
    requests_ = store_request_tags(secret_, nonce_, client_nonce);
    replies_ = store_reply_tags(secret_, nonce_, client_nonce);
  }
  // A refused client learns nothing: its answer has the same length and does not depend on the secret.
  output_ += known ? kStoreAccepts : kStoreRefuses;
  output_ += known ? store_server_hmac(secret_, nonce_, client_nonce) : std::string(kStoreAnswerBytes - 1, '\0');
  input_.clear();
}

std::optional<StoreRequest> StoreSession::next_request() {
  if (!admitted() || !wants_input()) return {};
  std::optional<StoreRequest> request = take_request(input_, requests_);
  reply_due_ = request.has_value();
  return request;
}

void StoreSession::reply(const StoreReply& reply) {
  reply_due_ = false;
  output_ += with_tag(encode(reply), replies_);
}

void StoreSession::sent(std::size_t bytes) {
  sent_ += bytes;
  if (sent_ < output_.size()) return;
  output_.clear();
  sent_ = 0;
}

}  // namespace lockstep
