// Runs the blocks of a kernel on the calling thread, one after another.
#pragma once

#include "tests/cuda_emulator/kernel.h"

namespace cuda_emulator {

void run_blocks(const Launch& launch);

}  // namespace cuda_emulator
