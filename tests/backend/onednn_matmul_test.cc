#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "lockstep/backend/cpu/onednn.h"
#include "tests/backend/onednn_testing.h"

namespace lockstep::testing {
namespace {

using OnednnMatmul = Onednn;

// c = op(a) op(b) + bias against loops, for one choice of sizes, types and transposes.
void check_matmul(MatmulKernels& kernels, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb,
                  bool with_bias, DType type_a, DType type_b, DType type_c) {
  SCOPED_TRACE(::testing::Message() << m << "x" << n << "x" << k << " " << ta << tb << with_bias << " " << name(type_a)
                                    << " " << name(type_b) << " " << name(type_c));
  Array a(ta ? Shape{k, m} : Shape{m, k}, type_a, kPlain, 1);
  Array b(tb ? Shape{n, k} : Shape{k, n}, type_b, kPlain, 2);
  Array bias({n}, DType::f32, kPlain, 3);
  Array c({m, n}, type_c);
  c.fill(NAN);
  KernelContext context;
  kernels.run(context, kernels::Matmul{{ta, tb}, a.view(), b.view(), with_bias ? bias.view() : View{}, c.view()});
  std::vector<double> expected(m * n);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double& sum = expected[i * n + j] = with_bias ? bias.get(j) : 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += a.get(ta ? l * m + i : i * k + l) * b.get(tb ? j * k + l : l * n + j);
      }
    }
  expect_near(c, expected, "c");
}

TEST_F(OnednnMatmul, MultipliesInEveryOrientationAndType) {
  auto kernels = make_onednn_matmul();
  const DType half = DType::bf16;
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (bool bias : {false, true})
        for (auto [m, n, k] : {std::array<std::int64_t, 3>{30, 2, 5}, {33, 65, 70}, {9, 9, 63}, {1, 7, 1}, {5, 1, 3}}) {
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, half, half);
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, DType::f32, half);
          check_matmul(*kernels, m, n, k, ta, tb, bias, half, half, DType::f32);
        }
}

}  // namespace
}  // namespace lockstep::testing
