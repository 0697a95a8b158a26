#include "lockstep/base/sha256.h"

#include <openssl/sha.h>

#include "lockstep/base/hmac.h"

// The functions that OpenSSL recommends instead link every algorithm: a static program would be 4 MB larger.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace lockstep {

void Sha256::Free::operator()(SHA256_CTX* context) const { delete context; }

Sha256::Sha256() : context_(new SHA256_CTX) { SHA256_Init(context_.get()); }

void Sha256::update(std::span<const std::byte> bytes) { SHA256_Update(context_.get(), bytes.data(), bytes.size()); }

std::string Sha256::digest() const {
  SHA256_CTX copy = *context_;  // finishing ends a context
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &copy);
  return digest;
}

std::string Sha256::hex() const { return hexadecimal(digest()); }

}  // namespace lockstep

#pragma GCC diagnostic pop
