#include "lockstep/base/hmac.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <span>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string digest(32, '\0');
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  // OpenSSL takes a null key to mean the previous key.
  const void* key_bytes = key.empty() ? "" : key.data();
  check(HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()), bytes, message.size(), bytes_of(digest), &size) &&
            size == digest.size(),
        "hmac: OpenSSL offers no HMAC-SHA256 here");
  return digest;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  check(RAND_bytes(bytes_of(bytes), static_cast<int>(count)) == 1, "random_bytes: OpenSSL cannot make random bytes");
  return bytes;
}

std::string hexadecimal(std::string_view bytes) {
  const std::span digits(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return fmt::format("{:02x}", fmt::join(digits, ""));
}

}  // namespace lockstep
