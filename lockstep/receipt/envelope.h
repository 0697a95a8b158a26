// Internal: a DSSE envelope (github.com/secure-systems-lab/dsse), as in-toto uses it: a payload with its signature.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Message that is signed: the payload with its type and their lengths.
std::string envelope_message(std::string_view payload);

// The envelope as JSON, signed with a private key in PEM.
std::string sign_envelope(std::string_view payload, std::string_view private_key, std::string_view key_origin);

struct OpenedEnvelope {
  std::string payload;
  std::string key_id;
};

// Throws an Error that begins with `origin` if the text is not an envelope with one signature. With a public key in
// PEM, throws unless that key has signed the payload.
OpenedEnvelope open_envelope(std::string_view text, std::string_view origin, std::string_view public_key);

}  // namespace lockstep
