#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/base/environment.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class MatmulTest : public KernelTest {
 protected:
  struct Extents {
    std::int64_t m, n, k;
  };

  void expect_product(Extents e, MatmulOptions options, bool master_b, bool bias, bool master_c) {
    SCOPED_TRACE(::testing::Message() << e.m << "x" << e.k << " times " << e.k << "x" << e.n
                                      << (options.transpose_a ? ", a transposed" : "")
                                      << (options.transpose_b ? ", b transposed" : "") << (master_b ? ", b in f32" : "")
                                      << (bias ? ", bias" : "") << (master_c ? ", c in f32" : ""));
    Shape a = options.transpose_a ? Shape{e.k, e.m} : Shape{e.m, e.k};
    Shape b = options.transpose_b ? Shape{e.n, e.k} : Shape{e.k, e.n};
    expect_matches_reference({input(a), master_b ? master(b) : input(b), bias ? master({e.n}) : TestTensor()},
                             {master_c ? master_output({e.m, e.n}) : output({e.m, e.n})},
                             [&](Backend& backend, KernelContext& c, Views in, Views out) {
                               backend.run(c, kernels::Matmul{options, in[0], in[1], in[2], out[0]});
                             });
  }
};

TEST_P(MatmulTest, EveryTransposition) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      for (Extents e : {Extents{5, 7, 9}, {32, 10, 48}, {1, 16, 33}, {16, 1, 8}, {17, 40, 1}}) {
        expect_product(e, {transpose_a, transpose_b}, false, true, false);
      }
    }
  }
}

// Also a search, as ConvTest.RandomShapesAndLayouts.
TEST_P(MatmulTest, EveryCombinationOfDtypes) {
  const std::int64_t count = environment_integer("LOCKSTEP_TEST_CASES", 1, 1'000'000).value_or(12);
  if (auto seed = environment_integer("LOCKSTEP_TEST_SEED", 0, 1'000'000)) random_ = Random(*seed);
  for (std::int64_t i = 0; i < count && !HasFailure(); ++i) {
    Extents e{random_.integer(1, 40), random_.integer(1, 40), random_.integer(1, 70)};
    MatmulOptions options{random_.integer(0, 1) == 1, random_.integer(0, 1) == 1};
    for (bool master_b : {false, true}) {
      for (bool master_c : {false, true}) expect_product(e, options, master_b, i % 2 == 0, master_c);
    }
  }
}

// oneDNN 2.6.3 with AMX is wrong, or crashes, where 63 products are summed.
TEST_P(MatmulTest, SixtyThreeProducts) {
  for (bool transpose_a : {false, true}) {
    expect_product({33, 10, 63}, {.transpose_a = transpose_a}, false, true, false);
    expect_product({33, 144, 63}, {.transpose_a = transpose_a}, true, false, true);
    expect_product({6, 144, 63}, {.transpose_a = transpose_a}, false, false, true);
  }
}

TEST_P(MatmulTest, EmptyExtents) {
  expect_product({0, 5, 3}, {}, true, true, false);
  expect_product({0, 5, 3}, {.transpose_b = true}, true, false, false);
  // An empty shard: the gradient of the weights is zero, not what was there before.
  expect_product({4, 6, 0}, {.transpose_a = true}, false, false, true);
  expect_product({4, 6, 0}, {}, false, true, false);
}

TEST_P(MatmulTest, RoundsMasterWeightsBeforeMultiplying) {
  TestTensor a({1, 1}, dtype(), {1}), b({1, 1}, master_dtype(), {1 + 1.0 / 4096});
  TestTensor c =
      run({a, b, {}}, {master_output({1, 1})}, [](Backend& backend, KernelContext& context, Views in, Views out) {
        backend.run(context, kernels::Matmul{{}, in[0], in[1], in[2], out[0]});
      })[0];
  EXPECT_EQ(c.values()[0], is_half_dtype(dtype()) ? 1 : 1 + 1.0 / 4096);
}

// The halves of a sum may be computed apart; the first one would be 258 in bf16 or f16.
TEST_P(MatmulTest, AddsInMoreThanTheTypeOfTheResult) {
  std::vector<double> terms(64, 8.0625);
  terms[0] = 8;
  std::fill(terms.begin() + 32, terms.end(), -8);
  TestTensor a({1, 64}, dtype(), Layout::plain, terms), b({64, 2}, dtype(), Layout::plain, std::vector<double>(128, 1));
  TestTensor c = run({a, b, {}}, {output({1, 2})}, [](Backend& backend, KernelContext& context, Views in, Views out) {
    backend.run(context, kernels::Matmul{{}, in[0], in[1], in[2], out[0]});
  })[0];
  EXPECT_EQ(c.values(), (std::vector<double>{1.9375, 1.9375}));
}

// The order in which a kernel reads b is a matter of speed. Memory that prepare() leaves as it was holds NaN.
TEST_P(MatmulTest, PreparedWeightsChangeNoBit) {
  for (Extents e : {Extents{17, 150, 1111}, {1, 4100, 1}, {97, 64, 80}, {3, 10, 500}, {5, 32, 4000}}) {
    for (int i = 0; i < 8; ++i) {
      const MatmulOptions options{i % 2 == 1, i / 2 % 2 == 1};
      const Shape b_shape = options.transpose_b ? Shape{e.n, e.k} : Shape{e.k, e.n};
      const Tensors inputs{input(options.transpose_a ? Shape{e.k, e.m} : Shape{e.m, e.k}),
                           i / 4 == 1 ? master(b_shape) : input(b_shape), master({e.n})};
      const auto product = [&](bool prepare) {
        return run(inputs, {output({e.m, e.n})}, [&](Backend& backend, KernelContext& c, Views in, Views out) {
          const std::int64_t size = backend.matmul().prepared_size(options, e.m, b_shape, dtype());
          std::vector<float> memory(static_cast<std::size_t>(size), std::numeric_limits<float>::quiet_NaN());
          View prepared;
          if (prepare && size > 0) {
            prepared = {.data = memory.data(), .dtype = DType::f32, .shape = {size}};
            backend.run(c, kernels::PrepareMatmul{options, in[1], dtype(), prepared});
          }
          backend.run(c, kernels::Matmul{options, in[0], {in[1], prepared}, in[2], out[0]});
        })[0];
      };
      EXPECT_TRUE(product(true).same_bits(product(false))) << e.m << "x" << e.n << "x" << e.k << ", case " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MatmulTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
