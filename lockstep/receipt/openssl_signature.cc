#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/sha256.h"
#include "lockstep/receipt/signature.h"

namespace lockstep {
namespace {

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(unsigned char* bytes) const { OPENSSL_free(bytes); }
};
template <typename T>
using OpenSsl = std::unique_ptr<T, FreeOpenSsl>;
using Key = OpenSsl<EVP_PKEY>;

// Refuses a key with a password instead of asking for it.
int no_password(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*user*/) { return -1; }

Key read_key(std::string_view pem, std::string_view origin, bool is_private) {
  const OpenSsl<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  check(bio != nullptr, "{}: out of memory", origin);
  Key key(is_private ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr)
                     : PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  const char* kind = is_private ? "private" : "public";
  check(key != nullptr, "{}: not a {} key in PEM without a password, expected one of Ed25519", origin, kind);
  check(EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519, "{}: a {} key of another algorithm, expected Ed25519", origin,
        kind);
  return key;
}

std::string id_of(EVP_PKEY* key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  const OpenSsl<unsigned char> owner(der);
  check(size > 0, "signature: cannot write the public key");
  Sha256 hash;
  hash.update({reinterpret_cast<const std::byte*>(der), static_cast<std::size_t>(size)});
  return hash.hex();
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Signature sign_ed25519(std::string_view private_key, std::string_view origin, std::string_view message) {
  const Key key = read_key(private_key, origin, true);
  const OpenSsl<EVP_MD_CTX> context(EVP_MD_CTX_new());
  Signature signature{id_of(key.get()), std::string(64, '\0')};
  std::size_t size = signature.bytes.size();
  const bool ok = context != nullptr && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
                  EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.bytes.data()), &size,
                                 bytes_of(message), message.size()) == 1;
  check(ok && size == signature.bytes.size(), "{}: cannot sign with this key", origin);
  return signature;
}

std::string public_key_id(std::string_view public_key, std::string_view origin) {
  return id_of(read_key(public_key, origin, false).get());
}

bool verify_ed25519(std::string_view public_key, std::string_view origin, std::string_view message,
                    std::string_view signature) {
  const Key key = read_key(public_key, origin, false);
  const OpenSsl<EVP_MD_CTX> context(EVP_MD_CTX_new());
  check(context != nullptr && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1,
        "{}: cannot verify with this key", origin);
  return EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(message), message.size()) == 1;
}

}  // namespace lockstep
