// The elements of one tensor whose bits differ in two runs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

struct BitDifference {
  std::int64_t first = 0;  // element, in plain order
  std::int64_t count = 0, elements = 0;
  // Of the first element: numbers that come back exactly, and their bits in hexadecimal digits.
  std::string values[2], bits[2];
};

// Two lines of train/step_watch.h that name files with values. Nothing if sizes or types differ, or no bit does.
std::optional<BitDifference> compare_bits(const nlohmann::json& a, const nlohmann::json& b);

// [2, 3]
std::string shape_text(const nlohmann::json& shape);
// The place of an element of this shape.
std::vector<std::int64_t> index_of(std::int64_t element, const nlohmann::json& shape);

}  // namespace lockstep::app
