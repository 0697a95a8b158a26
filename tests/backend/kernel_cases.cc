// The back ends under test here; tests/gpu has others.
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {

std::vector<KernelCase> kernel_cases(std::initializer_list<DType> dtypes) {
  std::vector<KernelCase> cases;
  for (DType dtype : dtypes) {
    std::string type(name(dtype));
    const auto make_cpu = [] { return make_cpu_backend(); };
    cases.push_back({"cpu_" + type, make_cpu, dtype, 1});
    if (dtype == DType::f64) continue;
    cases.push_back({"cpu_" + type + "_two_threads", make_cpu, dtype, 2});
    cases.push_back({"reference_" + type, make_reference_backend, dtype, 1});
  }
  return cases;
}

}  // namespace lockstep::testing
