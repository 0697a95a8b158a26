// Finds the elements of one tensor whose bits differ in two runs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

struct BitDifference {
  std::int64_t first = 0;  // index of the first such element, in plain order
  std::int64_t count = 0, elements = 0;
  // Values of the first element as decimal numbers that read back exactly, and its bits in hexadecimal.
  std::string values[2], bits[2];
};

// Compares two values: lines of train/step_watch.h with files. Empty if sizes or types differ, or if no bit does.
std::optional<BitDifference> compare_bits(const nlohmann::json& a, const nlohmann::json& b);

// Returns a text such as [2, 3].
std::string shape_text(const nlohmann::json& shape);
// Returns the index of an element along each axis of this shape.
std::vector<std::int64_t> index_of(std::int64_t element, const nlohmann::json& shape);

}  // namespace lockstep::app
