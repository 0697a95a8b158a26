// Numbers that are computed from a name and an index, as in the scripts of tests/parity.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::testing {

inline std::uint32_t fnv1a(const std::string& name) {
  std::uint32_t h = 2166136261u;
  for (unsigned char c : name) h = (h ^ c) * 16777619u;
  return h;
}

inline std::uint64_t mixed(std::uint32_t hash, std::uint64_t index) {
  std::uint64_t s = (hash + index * 2654435761u) & 0xffffffffu;
  s ^= s >> 15;
  s = s * 2246822519u & 0xffffffffu;
  return s ^ s >> 13;
}

}  // namespace lockstep::testing
