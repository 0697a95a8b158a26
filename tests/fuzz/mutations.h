// Inputs of the fuzzers.
#pragma once

#include <algorithm>
#include <string>

#include "tests/fuzz/reader.h"
#include "tests/mutate.h"

namespace lockstep::fuzz {

// One to four changes, and sometimes a piece many times: what takes more than linear time or memory shows in length.
// Half of the results are repaired.
inline std::string damaged(std::string bytes, Dice& dice, const Reader& reader, std::size_t most_bytes) {
  bytes = mutated(std::move(bytes), dice, {.pieces = reader.words});
  if (dice.below(16) == 0 && !bytes.empty()) {
    const std::size_t at = dice.below(bytes.size());
    const std::string piece = bytes.substr(at, 1 + dice.below(64));
    const std::size_t times = dice.below(most_bytes / piece.size() + 1);
    std::string many;
    for (std::size_t i = 0; i < times; ++i) many += piece;
    bytes.insert(at, many);
  }
  if (reader.repair && dice.below(2) == 0) reader.repair(bytes);
  if (bytes.size() > most_bytes) bytes.resize(most_bytes);
  return bytes;
}

}  // namespace lockstep::fuzz
