// Internal: the parts of a challenge and its response: HMAC-SHA256 (RFC 2104), random bytes, and a constant-time
// comparison.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Returns 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

// The time depends on the lengths alone, not on where the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Bytes from the kernel's cryptographic generator.
std::string random_bytes(std::size_t count);

// Two lower-case digits per byte.
std::string hexadecimal(std::string_view bytes);

}  // namespace lockstep
