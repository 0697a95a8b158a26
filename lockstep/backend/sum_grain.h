// Internal: where sums on CPUs are cut into partial sums.
#pragma once

#include <cstdint>

namespace lockstep {

// So many elements are one sum. Kernels cut more of them into chunks, by their places, and add the sums of these.
inline constexpr std::int64_t kSumGrain = 65536;

}  // namespace lockstep
