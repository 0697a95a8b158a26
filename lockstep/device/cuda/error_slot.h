// Reports bad data from a kernel to the host, in a slot of page-locked memory that both see. The first report stays
// until the host has taken it. report() of backend/cuda/report.cuh writes it.
#pragma once

#include <cstdint>

namespace lockstep {

enum class DataError : int { none, label_out_of_range, index_out_of_range, division_by_zero };

struct ErrorSlot {
  int claimed = 0;                    // 1 once a thread has the right to report
  DataError error = DataError::none;  // written last
  std::int64_t index = 0;             // index of the wrong element
  std::int64_t value = 0;
  std::int64_t end = 0;  // the valid values are 0 to end - 1
};

}  // namespace lockstep
