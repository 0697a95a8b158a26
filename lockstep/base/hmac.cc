#include "lockstep/base/hmac.h"

#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <sys/random.h>

#include <cerrno>
#include <span>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"

namespace lockstep {

std::string hmac_sha256(std::string_view key, std::string_view message) {
  constexpr std::size_t kBlock = 64;
  const auto hash = [](std::string_view first, std::string_view second) {
    Sha256 sha;
    sha.update(std::as_bytes(std::span(first)));
    sha.update(std::as_bytes(std::span(second)));
    return sha.digest();
  };
  std::string block(key.size() > kBlock ? hash(key, {}) : std::string(key));
  block.resize(kBlock, '\0');
  std::string inner = block, outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return hash(outer, hash(inner, message));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t at = 0; at < count;) {
    const ssize_t made = ::getrandom(bytes.data() + at, count - at, 0);
    check(made > 0 || errno == EINTR, "random_bytes: the kernel returned no bytes: {}",
          std::generic_category().message(errno));
    if (made > 0) at += static_cast<std::size_t>(made);
  }
  return bytes;
}

std::string hexadecimal(std::string_view bytes) {
  const std::span digits(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return fmt::format("{:02x}", fmt::join(digits, ""));
}

}  // namespace lockstep
