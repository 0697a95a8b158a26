#include "lockstep/data/hash_split.h"

#include <string>

#include "lockstep/base/sha256.h"

namespace lockstep {

bool in_validation(std::span<const std::byte> content, double share) {
  check(share >= 0 && share < 1, "split: a share of {} for validation, expected at least 0 and below 1", share);
  if (share == 0) return false;
  Sha256 hash;
  hash.update(content);
  const std::string digest = hash.digest();
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof bits; ++i) bits = bits << 8U | static_cast<unsigned char>(digest[i]);
  return static_cast<double>(bits >> 11) * 0x1p-53 < share;
}

bool in_validation(std::string_view name_or_content, double share) {
  return in_validation(std::as_bytes(std::span(name_or_content)), share);
}

}  // namespace lockstep
