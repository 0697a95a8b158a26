// The CUDA back end for tests that know host memory only.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"

namespace lockstep::testing {

// Every kernel gets copies of its tensors in the GPU's memory, and what it made of them is copied back. In every other
// call they begin one element behind an aligned address, which must make no difference to a single bit. Null if there
// is no GPU.
std::unique_ptr<Backend> make_hosted_cuda_backend();

}  // namespace lockstep::testing
