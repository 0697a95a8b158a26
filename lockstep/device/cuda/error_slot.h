// How a kernel reports bad data to the host: a slot in page-locked memory that both see. The first report stays until
// the host has taken it. report() of backend/cuda/report.cuh writes it.
#pragma once

#include <cstdint>

namespace lockstep {

enum class DataError : int { none, label_out_of_range, index_out_of_range, division_by_zero };

struct ErrorSlot {
  int claimed = 0;                    // by the one thread that reports
  DataError error = DataError::none;  // written last
  std::int64_t index = 0;             // index of the wrong element
  std::int64_t value = 0;
  std::int64_t end = 0;  // allowed are 0 to end - 1
};

}  // namespace lockstep
