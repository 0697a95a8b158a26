// Internal: where sums on CPUs are cut into partial sums.
#pragma once

#include <cstdint>

namespace lockstep {

// Arrays of at most this many elements are summed in one part, larger arrays in several, cut at fixed places.
inline constexpr std::int64_t kSumGrain = 65536;

}  // namespace lockstep
