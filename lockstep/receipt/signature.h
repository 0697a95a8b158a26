// Internal: Ed25519 signatures, by OpenSSL. Keys are PEM text. A static build has none, because OpenSSL's code for keys
// has every algorithm, and would add a third to the program's size.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct Signature {
  std::string key_id;  // SHA-256 of the public key in DER, in hexadecimal digits
  std::string bytes;   // 64 bytes
};

// `origin` names the key in errors.
Signature sign_ed25519(std::string_view private_key, std::string_view origin, std::string_view message);
std::string public_key_id(std::string_view public_key, std::string_view origin);
bool verify_ed25519(std::string_view public_key, std::string_view origin, std::string_view message,
                    std::string_view signature);

}  // namespace lockstep
