// What a reader may take: time and memory in proportion to what it reads.
#pragma once

#include <string>

#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

enum class Outcome { read, refused };

// Throws std::logic_error where an input takes more processor time than kMostSeconds, or is refused in more than one
// line. The process ends with a message as soon as it takes too much memory, which the address sanitizer counts.
// An exception that is no Error passes.
Outcome read_within_limits(const Reader& reader, const std::string& bytes);

// For inputs of some 100 KB, under sanitizers: a hundred times what readers take, and less than quadratic time.
inline constexpr double kMostSeconds = 5;

}  // namespace lockstep::fuzz
