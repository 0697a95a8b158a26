// Tensors beside numbers: comparisons, where(), division, and numbers that a type does not hold.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity(), kNotANumber = NAN;

class NumbersTest : public ::testing::TestWithParam<bool> {
 protected:
  using Doubles = std::vector<double>;

  Tensor tensor(const Doubles& values, DType dtype = DType::f32) {
    return make_tensor(values, {std::ssize(values)}, device_, dtype);
  }
  Tensor whole(const std::vector<std::int64_t>& values) {
    return Tensor::from(values, {std::ssize(values)}).to(device_);
  }
  Tensor bytes(const std::vector<std::uint8_t>& values) {
    return Tensor::from(values, {std::ssize(values)}).to(device_);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .reference_backend = GetParam()}};
  Device device_ = runtime_.devices()[0];
};

INSTANTIATE_TEST_SUITE_P(BackEnds, NumbersTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

// True of x and y if they are compared exactly: x is an element, y any number.
template <typename T>
bool holds_exactly(int op, T x, double y) {
  if (std::isnan(y)) return op == 1;
  const long double a = static_cast<long double>(x), b = y;  // 64 bits of mantissa hold both
  return op == 0 ? a == b : op == 1 ? a != b : op == 2 ? a < b : op == 3 ? a <= b : op == 4 ? a > b : a >= b;
}

TEST_P(NumbersTest, WholeNumbersAreComparedWithEveryNumberExactly) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(), kMost = ~kLeast;
  const std::vector<std::int64_t> numbers{kLeast, kLeast + 1,  -(1LL << 53) - 1, -2,        -1,   0, 1, 2, 255,
                                          256,    (1LL << 53), (1LL << 53) + 1,  kMost - 1, kMost};
  const std::vector<std::uint8_t> small{0, 1, 2, 127, 128, 200, 254, 255};
  using Compare = Tensor (*)(const Tensor&, const Scalar&);
  const Compare comparisons[] = {eq, ne, lt, le, gt, ge};
  for (double y :
       {-kInfinite, -1e30, -0x1p63, -0x1p53, -2.5,  -1.0,  -0.5,   -0.0,   0.0,    0.5,  1.0,       1.5,        2.0,
        127.5,      254.5, 255.0,   255.5,   256.0, 300.0, 0x1p53, 0x1p62, 0x1p63, 1e30, kInfinite, kNotANumber}) {
    for (int op = 0; op < 6; ++op) {
      SCOPED_TRACE(fmt::format("comparison {} with {}", op, y));
      Doubles expected, expected_small;
      for (std::int64_t x : numbers) expected.push_back(holds_exactly(op, x, y));
      for (std::uint8_t x : small) expected_small.push_back(holds_exactly(op, x, y));
      EXPECT_EQ(values(comparisons[op](whole(numbers), y)), expected);
      EXPECT_EQ(values(comparisons[op](bytes(small), y)), expected_small);
    }
  }
}

TEST_P(NumbersTest, ATypeMustHoldTheNumber) {
  const Tensor i = whole({1, 2}), u = bytes({1, 2}), mask = bytes({1, 0}), half = tensor({1, 2}, DType::f16);
  EXPECT_EQ(values(where(mask, 7.0, i)), (Doubles{7, 2}));
  EXPECT_EQ(values(masked_fill(u, mask, 255)), (Doubles{255, 2}));
  EXPECT_EQ(values(masked_fill(i, mask, -0x1p63)), (Doubles{-0x1p63, 2}));
  EXPECT_EQ(values(pad(u, {1, 0}, 3)), (Doubles{3, 1, 2}));
  EXPECT_EQ(values(masked_fill(half, mask, -kInfinite)), (Doubles{-kInfinite, 2}));
  EXPECT_EQ(values(masked_fill(half, mask, 65504)), (Doubles{65504, 2}));
  EXPECT_TRUE(std::isnan(values(masked_fill(half, mask, kNotANumber))[0]));
  for (double number : {0.5, -0.5, 0x1p63, 1e30, kInfinite, -kInfinite, kNotANumber}) {
    EXPECT_ERROR(where(mask, number, i), "where: ");
    EXPECT_ERROR(where(mask, i, number), "in a tensor of i64, expected a whole number of its range");
    EXPECT_ERROR(masked_fill(i, mask, number), "masked_fill: ");
    EXPECT_ERROR(full_like(i, number), "full_like: ");
    EXPECT_ERROR(pad(i, {0, 1}, number), "pad: ");
    EXPECT_ERROR(full({2}, number, {.dtype = DType::i64, .device = device_}), "full: ");
    EXPECT_ERROR(full({2}, number, {.dtype = DType::i64}), "full: ");
    EXPECT_ERROR(full({2}, number, like(i)), "full: ");
  }
  for (double number : {-1.0, 256.0, 300.0, 1.5}) {
    EXPECT_ERROR(masked_fill(u, mask, number), "in a tensor of u8, expected a whole number of its range");
    EXPECT_ERROR(full_like(u, number), "in a tensor of u8");
  }
  EXPECT_ERROR(masked_fill(half, mask, -1e9), "masked_fill: -1000000000 is beyond the range of f16");
  EXPECT_ERROR(full_like(tensor({1}), 1e39), "full_like: 1e+39 is beyond the range of f32");
  EXPECT_ERROR(arange(0, 300, {.dtype = DType::u8}), "arange: 299 in a tensor of u8");
  EXPECT_ERROR(arange(-1, 3, {.dtype = DType::u8, .device = device_}), "arange: -1 in a tensor of u8");
  EXPECT_ERROR(pow(0.5, i), "pow: 0.5 with [2] i64");
}

TEST_P(NumbersTest, QuotientsByANumberAreRoundedOnce) {
  for (int a = 1; a <= 60; ++a) {
    Doubles products, factors;
    for (int b = 1; b <= 60; ++b) {
      factors.push_back(b);
      products.push_back(a * b);
    }
    EXPECT_EQ(values(tensor(products) / a), factors);
    EXPECT_EQ(values(tensor(products, DType::f64) / a), factors);
  }
  EXPECT_EQ(values(tensor({0, 0.025F}) / 1e-40)[0], 0);
  EXPECT_NEAR(values(tensor({0, 0.025F}) / 1e-40)[1] / 2.5e38, 1, 1e-4);
  Tensor x = as_leaf(tensor({3, 9}));
  backward({x / 3}, {tensor({7, 49})});
  EXPECT_EQ(values(x.grad()), values(tensor({7, 49}) / 3));
}

TEST_P(NumbersTest, TheDivisorsGradientNeitherOverflowsNorUnderflows) {
  const auto gradient = [&](double a, double b, DType dtype) {
    Tensor divisor = as_leaf(tensor({b}, dtype));
    sum(tensor({a}, dtype) / divisor).backward();
    return values(divisor.grad())[0];
  };
  EXPECT_EQ(gradient(0, 1e-30, DType::f32), 0);
  EXPECT_NEAR(gradient(1e-25, 1e-25, DType::f32) / -1e25, 1, 1e-6);
  EXPECT_NEAR(gradient(1e10, 1e20, DType::f32) / -1e-30, 1, 1e-6);
  EXPECT_NEAR(gradient(1e20, 1e20, DType::f32) / -1e-20, 1, 1e-6);
  EXPECT_EQ(gradient(kInfinite, 1.9e19, DType::f32), -kInfinite);
  EXPECT_NEAR(gradient(100, 300, DType::f16) / -1.1111e-3, 1, 1e-3);
  EXPECT_NEAR(gradient(0x1p-13, 0x1p-13, DType::f16) / -0x1p13, 1, 1e-3);
  EXPECT_NEAR(gradient(3, 0x1p40, DType::bf16) / (-3 * 0x1p-80), 1, 1e-2);
  // The sum over a row is taken before it is rounded.
  Tensor x = as_leaf(tensor(Doubles(512, 1), DType::f16));
  const Tensor y = x / sum(x);
  y.narrow(0, 0, 1).backward();
  EXPECT_NEAR(values(x.grad())[0] / (1.0 / 512 - 1.0 / 512 / 512), 1, 1e-3);
  EXPECT_NEAR(values(x.grad())[1] / (-1.0 / 512 / 512), 1, 2e-2);
}

TEST_P(NumbersTest, PowersOfInfinityWithTinyExponents) {
  EXPECT_EQ(values(pow(tensor({kInfinite, 0}), 1e-30)), (Doubles{kInfinite, 0}));
  EXPECT_EQ(values(pow(tensor({kInfinite, 0}), -1e-30)), (Doubles{0, kInfinite}));
  EXPECT_EQ(values(pow(tensor({kInfinite, 0}), 1e-40)), (Doubles{kInfinite, 0}));
  EXPECT_EQ(values(pow(tensor({kInfinite, 0}), -1e-45)), (Doubles{0, kInfinite}));
}

TEST_P(NumbersTest, ACastToWholeNumbersHasNoHistory) {
  Tensor x = as_leaf(tensor({1.5, -2.25}));
  for (const DType dtype : {DType::i64, DType::u8}) EXPECT_FALSE(cast(abs(x), dtype).requires_grad());
  EXPECT_TRUE(cast(x, DType::bf16).requires_grad());
  sum(x - cast(cast(x, DType::i64), DType::f32)).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{1, 1}));
}

}  // namespace
}  // namespace lockstep::testing
