// Splits by a hash of each example's name or content: an example stays in its part when others are added or removed,
// and on every machine.
//
//   if (in_validation("cats/7.jpg", 0.1)) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// True for about `share` of all names or contents: if the first 53 bits of its SHA-256, as a fraction, are below
// `share`. A larger share only adds examples. Equal examples are in the same part. Throws unless 0 <= share < 1.
bool in_validation(std::string_view name_or_content, double share);
bool in_validation(std::span<const std::byte> content, double share);

// The numbers of the examples in each part, in ascending order.
struct SplitRows {
  std::vector<std::int64_t> train, validation;
};

}  // namespace lockstep
