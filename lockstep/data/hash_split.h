// Splits data by a hash of each example's name or content, so that an example is in the same part on every machine, and
// stays there when other examples are added or removed.
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

// True for about `share` of all names or contents: where the first 53 bits of the SHA-256, read as a fraction, are
// below `share`. A larger share only adds examples. Equal examples are in the same part. Throws unless 0 <= share < 1.
bool in_validation(std::string_view name_or_content, double share);
bool in_validation(std::span<const std::byte> content, double share);

// Indices of the examples in each part, in ascending order.
struct SplitRows {
  std::vector<std::int64_t> train, validation;
};

}  // namespace lockstep
