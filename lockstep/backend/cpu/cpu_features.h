// What the processor this process runs on can do.
#pragma once

namespace lockstep {

bool cpu_has_avx512();
// Multiplies bf16 in hardware (AVX-512 BF16 or AMX). Elsewhere f32 arithmetic is faster than emulation.
bool cpu_has_fast_bf16();

}  // namespace lockstep
