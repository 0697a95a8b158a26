#include "lockstep/base/sha256.h"

#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>

#include "lockstep/base/error.h"

namespace lockstep {

void Sha256::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
        "sha256: OpenSSL offers no SHA-256 here");
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "sha256: OpenSSL failed on {} bytes",
        bytes.size());
}

std::string Sha256::hex() const {
  // Finishing ends a context, so finish a copy.
  const std::unique_ptr<EVP_MD_CTX, Free> copy(EVP_MD_CTX_new());
  std::array<unsigned char, 32> digest;
  check(copy && EVP_MD_CTX_copy_ex(copy.get(), context_.get()) == 1 &&
            EVP_DigestFinal_ex(copy.get(), digest.data(), nullptr) == 1,
        "sha256: OpenSSL failed to finish");
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace lockstep
