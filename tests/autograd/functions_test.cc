// Every differentiable function: its gradient against central differences in f64, and the fast back end
// against the reference.
#include <gtest/gtest.h>

#include "lockstep/base/environment.h"
#include "tests/autograd/gradient_testing.h"

namespace lockstep::testing {
namespace {

class FunctionsTest : public ::testing::TestWithParam<Differentiable> {
 protected:
  // Calls body(problem, values) for a few random shapes.
  template <typename Body>
  void for_random_inputs(const Body& body, int rounds = 4) {
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE(round);
      Random random(static_cast<std::uint64_t>(round));
      Problem problem = GetParam().make(random);
      body(problem, random_values(problem, random));
    }
  }

  void expect_cpu_close_to_reference(DType dtype, double tolerance) {
    Runtime cpu({.serial = true, .seed = 5});
    for_random_inputs([&](const Problem& problem, Values at) {
      at = rounded(problem, std::move(at), dtype, reference_.devices()[0]);
      Values expected = gradients(problem, at, reference_.devices()[0], DType::f64);
      Values actual = gradients(problem, at, cpu.devices()[0], dtype);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(distance(actual[i], expected[i]), tolerance) << (i + 1 < expected.size() ? "input " : "output ") << i;
      }
    });
  }

  Runtime reference_{{.serial = true, .reference_backend = true, .seed = 5}};
};

TEST_P(FunctionsTest, GradientsEqualCentralDifferences) {
  // Thousands of small kernels, each of which takes an emulated GPU long. The tests below compare the other shapes.
  const int rounds = environment("LOCKSTEP_EMULATED_GPUS") ? 1 : 4;
  for_random_inputs(
      [&](const Problem& problem, const Values& at) {
        Device device = reference_.devices()[0];
        Values expected = central_differences(problem, at, device);
        Values actual = gradients(problem, at, device, DType::f64);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_LT(distance(actual[i], expected[i]), 1e-7) << "input " << i;
        }
      },
      rounds);
}

TEST_P(FunctionsTest, CpuEqualsReferenceInF32) { expect_cpu_close_to_reference(DType::f32, 1e-4); }
TEST_P(FunctionsTest, CpuEqualsReferenceInBf16) { expect_cpu_close_to_reference(DType::bf16, 2e-2); }
TEST_P(FunctionsTest, CpuEqualsReferenceInF16) { expect_cpu_close_to_reference(DType::f16, 2.5e-3); }

INSTANTIATE_TEST_SUITE_P(All, FunctionsTest, ::testing::ValuesIn(differentiable_functions()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::testing
