// How a kernel tells the host of bad data: a place in page-locked memory that both see. The first report stays until the
// host has taken it. Written by report() of backend/cuda/report.cuh.
#pragma once

#include <cstdint>

namespace lockstep {

enum class DataError : int { none, label_out_of_range, index_out_of_range };

struct ErrorSlot {
  int claimed = 0;                    // by the one thread that reports
  DataError error = DataError::none;  // written last
  std::int64_t index = 0;             // of the element that is wrong
  std::int64_t value = 0;
  std::int64_t end = 0;  // allowed are 0 to end - 1
};

}  // namespace lockstep
