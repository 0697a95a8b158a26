// What a challenge and its response are made of: HMAC-SHA256 (RFC 2104), random bytes, a comparison that tells nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

// How long it takes depends on the lengths alone, not on where the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// From the system's generator for cryptography.
std::string random_bytes(std::size_t count);

// Two lower-case digits a byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace lockstep
