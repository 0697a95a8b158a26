#include <cmath>
#include <map>
#include <vector>

#include "tests/backend/kernel_testing.h"

#include "lockstep/runtime/random_state.h"

namespace lockstep::testing {
namespace {

const std::vector<Shape> kRandomShapes{{1}, {7}, {3, 1001}, {2, 16, 5, 5}, {0}};
const RandomKey kKey = random_key(3, {1, 4});

class RandomTest : public KernelTest {};

TEST_P(RandomTest, UniformToTheBit) {
  for (const Shape& shape : kRandomShapes) {
    expect_same_bits_as_reference({}, {output(shape)}, [](Backend& b, KernelContext& c, Views, Views out) {
      b.run(c, kernels::Uniform{kKey, -0.3, 1.7, out[0]});
    });
  }
}

// Half of the sums round to the excluded end.
TEST_P(RandomTest, UniformExcludesItsEnd) {
  const std::map<DType, double> steps{
      {DType::f32, 0x1p-23}, {DType::bf16, 0x1p-7}, {DType::f16, 0x1p-10}, {DType::f64, 0x1p-52}};
  const Kernel kernel = [end = 1 + steps.at(dtype())](Backend& b, KernelContext& c, Views, Views out) {
    b.run(c, kernels::Uniform{kKey, 1, end, out[0]});
  };
  EXPECT_EQ(run({}, {output({1001})}, kernel)[0].values(), std::vector<double>(1001, 1));
  expect_same_bits_as_reference({}, {output({1001})}, kernel);
}

TEST_P(RandomTest, NormalToTheBit) {
  for (const Shape& shape : kRandomShapes) {
    expect_same_bits_as_reference({}, {output(shape)}, [](Backend& b, KernelContext& c, Views, Views out) {
      b.run(c, kernels::Normal{kKey, 0.1, 0.7, out[0]});
    });
  }
}

TEST_P(RandomTest, DropoutToTheBit) {
  for (const Shape& shape : kRandomShapes) {
    for (Layout layout : layouts_that_fit(shape)) {
      for (double keep : {1.0, 0.9, 1 - 0.7, 1 - 0.85}) {
        Kernel dropout = [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Dropout{kKey, {}, keep, in[0], out[0]});
        };
        expect_same_bits_as_reference({input(shape, layout)}, {output(shape, layout)}, dropout);
        expect_in_place({input(shape, layout)}, {output(shape, layout)}, 0, 0, dropout);
      }
    }
  }
}

TEST_P(RandomTest, DropoutFindsItsKeyInMemory) {
  const TestTensor x = input({1001});
  const Tensors y = run({x, TestTensor({2}, DType::i64, {5, 1e15})}, {output({1001}), output({1001}), output({1001})},
                        [](Backend& b, KernelContext& c, Views in, Views out) {
                          b.run(c, kernels::Dropout{kKey, in[1], 0.5, in[0], out[0]});
                          b.run(c, kernels::Dropout{RandomKey{5, 1'000'000'000'000'000}, {}, 0.5, in[0], out[1]});
                          b.run(c, kernels::Dropout{kKey, {}, 0.5, in[0], out[2]});
                        });
  EXPECT_EQ(y[0].values(), y[1].values());
  EXPECT_NE(y[0].values(), y[2].values());
}

TEST_P(RandomTest, DropoutKeepsTheShareItShould) {
  constexpr int kCount = 20000;
  TestTensor ones({kCount}, dtype(), Layout::plain, std::vector<double>(kCount, 1));
  Tensors y = run({ones}, {output({kCount})}, [](Backend& b, KernelContext& c, Views in, Views out) {
    b.run(c, kernels::Dropout{kKey, {}, 0.25, in[0], out[0]});
  });
  int kept = 0;
  for (double value : y[0].values()) {
    ASSERT_TRUE(value == 0 || value == 4);
    kept += value != 0;
  }
  EXPECT_NEAR(kept, kCount * 0.25, 5 * std::sqrt(kCount * 0.25 * 0.75));
}

INSTANTIATE_TEST_SUITE_P(Backends, RandomTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
