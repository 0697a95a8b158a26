// How kernels report invalid data.
#pragma once

#include "lockstep/backend/cuda/launch.h"
#include "lockstep/device/cuda/error_slot.h"

namespace lockstep::cuda {

// Reports `error` at `index`; an index or a label is a `value` outside [0, end). Only the first report is kept.
__device__ inline void report(ErrorSlot* slot, DataError error, std::int64_t index, std::int64_t value,
                              std::int64_t end) {
  if (atomicCAS(&slot->claimed, 0, 1) != 0) return;
  slot->index = index;
  slot->value = value;
  slot->end = end;
  __threadfence_system();
  *const_cast<volatile DataError*>(&slot->error) = error;
}

}  // namespace lockstep::cuda
