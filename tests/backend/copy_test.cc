#include <limits>

#include "tests/backend/kernel_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class CopyTest : public KernelTest {};

void copy(Backend& b, KernelContext& c, Views in, Views out) { b.copy().copy(c, in[0], out[0]); }

TEST_P(CopyTest, EveryPairOfDtypes) {
  for (DType to : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::u8}) {
    SCOPED_TRACE(name(to));
    for (const Shape& shape : std::vector<Shape>{{1037}, {3, 5, 7}, {}, {0, 4}}) {
      TestTensor x = random_.tensor_between(0, 255, shape, dtype());
      expect_same_bits_as_reference({x}, {TestTensor(shape, to)}, copy);
      expect_same_bits_as_reference({x.to(to, Layout::plain)}, {output(shape)}, copy);
    }
  }
}

TEST_P(CopyTest, EveryPairOfLayouts) {
  for (const Shape& shape : std::vector<Shape>{
           {2, 16, 5, 7}, {1, 48, 3, 1}, {3, 5, 4, 4}, {2, 1, 6, 3}, {4, 32, 1, 1}, {0, 16, 2, 2}}) {
    for (Layout from : layouts_that_fit(shape)) {
      for (Layout to : layouts_that_fit(shape)) {
        SCOPED_TRACE(shape.str() + " " + std::string(name(from)) + " to " + std::string(name(to)));
        for (DType type : {dtype(), DType::f32, DType::i64}) {
          TestTensor x = random_.tensor_between(-50, 50, shape, dtype(), from);
          expect_same_bits_as_reference({x}, {TestTensor(shape, type, to)}, copy);
        }
      }
    }
  }
}

TEST_P(CopyTest, RoundsToNearestEven) {
  // bf16 has 7 bits of mantissa: the halves between neighbours go to the even one.
  TestTensor x({6}, DType::f32,
               {1 + 1.0 / 256, 1 + 3.0 / 256, 1 + 1.01 / 256, 1 + 0.99 / 256, -1 - 3.0 / 256, 3e38});
  TestTensor y = run({x}, {TestTensor({6}, DType::bf16)}, copy)[0];
  std::vector<double> expected{1, 1 + 4.0 / 256, 1 + 2.0 / 256, 1, -1 - 4.0 / 256, 0};
  expected[5] = static_cast<float>(BFloat16(3e38f));
  EXPECT_EQ(y.values(), expected);
}

// f16 has 10 bits of mantissa, and fewer below 2^-14.
TEST_P(CopyTest, RoundsToF16) {
  const double infinity = std::numeric_limits<double>::infinity();
  TestTensor x({9}, DType::f32,
               {1 + 1.0 / 2048, 1 + 3.0 / 2048, -1 - 1.01 / 2048, 65519.99, -65520, 0x1.8p-24, 0x1p-25, -0x1.02p-25, 3e38});
  TestTensor y = run({x}, {TestTensor({9}, DType::f16)}, copy)[0];
  EXPECT_EQ(y.values(), (std::vector<double>{1, 1 + 4.0 / 2048, -1 - 2.0 / 2048, 65504, -infinity, 0x1p-23, 0, -0x1p-24,
                                             infinity}));
}

TEST_P(CopyTest, Permutes) {
  const std::vector<std::pair<Shape, std::vector<int>>> cases{{{5, 37}, {1, 0}},
                                                              {{2, 3, 4, 5}, {0, 2, 3, 1}},
                                                              {{2, 3, 4, 5}, {3, 1, 0, 2}},
                                                              {{2, 3, 4}, {0, 1, 2}},
                                                              {{2, 1, 3, 2, 2, 3}, {5, 3, 1, 0, 2, 4}},
                                                              {{4, 0, 2}, {2, 0, 1}},
                                                              {{7}, {0}}};
  for (const auto& [shape, axes] : cases) {
    Shape permuted = shape;
    for (int i = 0; i < shape.rank(); ++i) permuted[i] = shape[axes[i]];
    for (DType type : {dtype(), DType::i64, DType::u8}) {
      TestTensor x = random_.tensor_between(0, 255, shape).to(type, Layout::plain);
      expect_same_bits_as_reference({x}, {TestTensor(permuted, type)},
                                    [&](Backend& b, KernelContext& c, Views in, Views out) {
                                      b.copy().permute(c, in[0], axes, out[0]);
                                    });
    }
  }
}

void gather_rows(Backend& b, KernelContext& c, Views in, Views out) {
  b.copy().gather_rows(c, in[0], in[1], out[0]);
}

TEST_P(CopyTest, GathersRows) {
  for (std::int64_t n : {0, 1, 5, 100}) {
    expect_same_bits_as_reference({input({9, 3, 5}), random_.integers(0, 8, {n})}, {output({n, 3, 5})},
                                  gather_rows);
    expect_same_bits_as_reference({input({4}), random_.integers(0, 3, {n})}, {output({n})}, gather_rows);
  }
}

TEST_P(CopyTest, GatherRefusesRowsThatAreNotThere) {
  EXPECT_ERROR(run({input({4, 3}), TestTensor({2}, DType::i64, {3, 4})}, {output({2, 3})}, gather_rows),
               "gather_rows: row 4 at place 1 is outside [0, 4)");
  EXPECT_ERROR(run({input({4, 3}), TestTensor({1}, DType::i64, {-1})}, {output({1, 3})}, gather_rows),
               "gather_rows: row -1 at place 0");
}

INSTANTIATE_TEST_SUITE_P(Backends, CopyTest, ::testing::ValuesIn(kernel_cases()), kernel_case_name);

}  // namespace
}  // namespace lockstep::testing
