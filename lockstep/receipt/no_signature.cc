#include "lockstep/base/error.h"
#include "lockstep/receipt/signature.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_unsigned(std::string_view origin) {
  fail("{}: this build has no signatures (LOCKSTEP_STATIC), expected another one, or no key", origin);
}

}  // namespace

Signature sign_ed25519(std::string_view, std::string_view origin, std::string_view) { fail_unsigned(origin); }

std::string public_key_id(std::string_view, std::string_view origin) { fail_unsigned(origin); }

bool verify_ed25519(std::string_view, std::string_view origin, std::string_view, std::string_view) {
  fail_unsigned(origin);
}

}  // namespace lockstep
