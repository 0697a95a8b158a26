// Built without CUDA.
#include "lockstep/backend/backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions&) {
  fail("there is no CUDA back end: Lockstep was built without it");
}

}  // namespace lockstep
