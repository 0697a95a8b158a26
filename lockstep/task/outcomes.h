// Internal: outcomes in the terms of a schema: its classes, and numbers in the units of the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/task/data_schema.h"
#include "lockstep/train/outcomes.h"

namespace lockstep {

// Makes no table for more classes than `most_in_table`.
Outcomes outcomes_of(const DataSchema& schema, std::size_t most_in_table = SIZE_MAX);

// Returns the shortest text of number k of an example with the same normalized f32: 217181, not 217180.997455.
std::string shortest_text(double value, const DataSchema& schema, std::size_t k);

}  // namespace lockstep
