// The vector instructions that this process computes with.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

enum class Simd {
  scalar,  // the architecture's baseline instructions
  avx2,    // and FMA
  avx512,  // F, BW, VL and DQ
  neon,    // every 64-bit ARM processor has it
};

// The widest instructions that the processor and the operating system support.
Simd widest_simd();

// `setting` is LOCKSTEP_SIMD: scalar, avx2, avx512, or neon; without it, returns `widest`. Throws for any other word,
// and for instructions beyond `widest`.
Simd choose_simd(const std::optional<std::string>& setting, Simd widest);

// The choice for this process. The environment is read once, by the first call; if that throws, every call does.
Simd simd();

}  // namespace lockstep
