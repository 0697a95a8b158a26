#include "tests/backend/kernel_testing.h"
#include "tests/gpu/hosted_backend.h"

namespace lockstep::testing {

std::vector<KernelCase> kernel_cases(std::initializer_list<DType> dtypes) {
  std::vector<KernelCase> cases;
  for (DType dtype : dtypes) {
    cases.push_back({"cuda_" + std::string(name(dtype)), make_hosted_cuda_backend, dtype, 1});
  }
  return cases;
}

}  // namespace lockstep::testing
