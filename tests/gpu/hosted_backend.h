// The CUDA back end for tests that use only host memory.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep::testing {

// Every kernel gets copies of its tensors in the GPU's memory, and the results are copied back. In every other call
// they begin one element after an aligned address, which must not change a bit. Null if there is no GPU.
std::unique_ptr<Backend> make_hosted_cuda_backend();

}  // namespace lockstep::testing
