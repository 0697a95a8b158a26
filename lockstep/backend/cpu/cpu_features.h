// What the processor this process runs on can do.
#pragma once

namespace lockstep {

// AVX-512 F, BW, VL and DQ.
bool cpu_has_avx512();

}  // namespace lockstep
