#include "lockstep/data/hash_split.h"

#include <charconv>
#include <string>

#include "lockstep/base/sha256.h"

namespace lockstep {

bool in_validation(std::span<const std::byte> content, double share) {
  check(share >= 0 && share < 1, "split: a share of {} for validation, expected at least 0 and below 1", share);
  Sha256 hash;
  hash.update(content);
  const std::string hex = hash.hex();
  std::uint64_t bits = 0;
  std::from_chars(hex.data(), hex.data() + 16, bits, 16);
  return static_cast<double>(bits >> 11) * 0x1p-53 < share;
}

bool in_validation(std::string_view name_or_content, double share) {
  return in_validation(std::as_bytes(std::span(name_or_content)), share);
}

}  // namespace lockstep
