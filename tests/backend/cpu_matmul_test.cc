// How operands lie in memory decides how an f32 product is computed, and no bit of it.
#include <algorithm>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

TestTensor transposed(const TestTensor& x) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const std::vector<double> from = x.values();
  std::vector<double> to(from.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      to[static_cast<std::size_t>(c * rows + r)] = from[static_cast<std::size_t>(r * columns + c)];
    }
  }
  return TestTensor({columns, rows}, x.dtype(), Layout::plain, to);
}

TEST(CpuMatmulTest, TranspositionChangesNoBit) {
  struct Extents {
    std::int64_t m, n, k;
  };
  Random random(3);
  const auto cpu = make_cpu_backend();
  // Rows beyond a panel, columns beyond a tile and a block, terms beyond a run, a block, and a depth.
  for (const Extents e : {Extents{1, 1, 1},
                          {5, 7, 9},
                          {96, 32, 128},
                          {97, 48, 140},
                          {200, 16, 100},
                          {13, 33, 1300},
                          {300, 64, 643},
                          {2, 96, 512}}) {
    const TestTensor a = random.tensor({e.m, e.k}, DType::f32), b = random.tensor({e.k, e.n}, DType::f32),
                     bias = random.tensor({e.n}, DType::f32), a_t = transposed(a), b_t = transposed(b);
    for (const bool add : {false, true}) {
      const auto product = [&](bool transpose_a, bool transpose_b, int threads) {
        KernelContext context{threads};
        TestTensor c({e.m, e.n});
        cpu->run(context, kernels::Matmul{{transpose_a, transpose_b},
                                          (transpose_a ? a_t : a).view(),
                                          (transpose_b ? b_t : b).view(),
                                          add ? bias.view() : View{},
                                          c.view()});
        return c;
      };
      const TestTensor expected = product(false, false, 1);
      for (const int threads : {1, 3}) {
        for (const bool transpose_b : {false, true}) {
          EXPECT_TRUE(product(true, transpose_b, threads).same_bits(expected))
              << e.m << "x" << e.n << "x" << e.k << ", bias " << add << ", b transposed " << transpose_b << ", "
              << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
