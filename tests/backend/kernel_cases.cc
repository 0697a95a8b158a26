// The back ends under test here; tests/gpu has others.
#include "lockstep/base/environment.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {

std::vector<KernelCase> kernel_cases(std::initializer_list<DType> dtypes) {
  // oneDNN divides the work by the number of threads, so a search for what it computes wrongly tries several.
  const auto threads = static_cast<int>(environment_integer("LOCKSTEP_TEST_THREADS", 2, 64).value_or(2));
  std::vector<KernelCase> cases;
  for (DType dtype : dtypes) {
    std::string type(name(dtype));
    const auto make_cpu = [] { return make_cpu_backend(); };
    cases.push_back({"cpu_" + type, make_cpu, dtype, 1});
    if (dtype == DType::f64) continue;
    cases.push_back({"cpu_" + type + "_threads", make_cpu, dtype, threads});
    cases.push_back({"reference_" + type, make_reference_backend, dtype, 1});
  }
  return cases;
}

}  // namespace lockstep::testing
