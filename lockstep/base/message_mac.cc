#include "lockstep/base/message_mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <climits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kNonceBytes = 12;

void check_done(int done) { check(done == 1, "message tag: libcrypto cannot compute AES-256-GCM"); }

}  // namespace

void MessageMac::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

MessageMac::MessageMac() = default;
MessageMac::MessageMac(MessageMac&&) noexcept = default;
MessageMac& MessageMac::operator=(MessageMac&&) noexcept = default;
MessageMac::~MessageMac() = default;

MessageMac::MessageMac(std::string_view key) : context_(EVP_CIPHER_CTX_new()) {
  check(key.size() == kKeyBytes, "message tag: a key of {} bytes, expected {}", key.size(), kKeyBytes);
  check(context_ != nullptr, "message tag: out of memory");
  check_done(EVP_EncryptInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr,
                                reinterpret_cast<const unsigned char*>(key.data()), nullptr));
}

void MessageMac::begin() {
  if (begun_) return;
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof messages_; ++i) nonce[i] = static_cast<unsigned char>(messages_ >> (8 * i));
  check_done(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data()));
  ++messages_;
  begun_ = true;
}

void MessageMac::update(const void* data, std::size_t bytes) {
  begin();
  // Nothing is encrypted: all bytes are what GCM calls additional data.
  for (const auto* at = static_cast<const unsigned char*>(data); bytes > 0;) {
    const std::size_t some = std::min<std::size_t>(bytes, INT_MAX);
    int length = 0;
    check_done(EVP_EncryptUpdate(context_.get(), nullptr, &length, at, static_cast<int>(some)));
    at += some;
    bytes -= some;
  }
}

MessageMac::Tag MessageMac::finish() {
  begin();
  begun_ = false;
  Tag tag;
  int length = 0;
  check_done(EVP_EncryptFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(tag.data()), &length));
  check_done(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()));
  return tag;
}

bool MessageMac::finish_with(const Tag& tag) { return CRYPTO_memcmp(finish().data(), tag.data(), kTagBytes) == 0; }

}  // namespace lockstep
