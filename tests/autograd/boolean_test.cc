// Truth values: what makes them, their arithmetic, and u8 beside them.
#include <gtest/gtest.h>

#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

class BooleanTest : public ::testing::TestWithParam<bool> {
 protected:
  using Doubles = std::vector<double>;

  Tensor truth(const std::vector<bool>& values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(device_);
  }
  Tensor bytes(const std::vector<std::uint8_t>& values) {
    return Tensor::from(values, {std::ssize(values)}).to(device_);
  }
  Tensor whole(const std::vector<std::int64_t>& values) {
    return Tensor::from(values, {std::ssize(values)}).to(device_);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .reference_backend = GetParam()}};
  Device device_ = runtime_.devices()[0];
};

INSTANTIATE_TEST_SUITE_P(BackEnds, BooleanTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

TEST_P(BooleanTest, ElementsAreTrueOrFalse) {
  const Tensor x = truth({true, false});
  EXPECT_EQ(x.to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(x.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(x.to_host().str(), "tensor([true, false], bool, host)");
  EXPECT_TRUE((whole({3}) == 3).item<bool>());
  EXPECT_EQ(values(whole({0, 256, -1}).to(DType::boolean)), (Doubles{0, 1, 1}));
  EXPECT_EQ(values(Tensor::from({0.0F, 0.25F, NAN}, {3}).to(device_).to(DType::boolean)), (Doubles{0, 1, 1}));
  EXPECT_EQ(values(full({2}, 7, {.dtype = DType::boolean, .device = device_}).to(DType::i64)), (Doubles{1, 1}));
  EXPECT_TRUE(bytes({2}).item<bool>());
  EXPECT_TRUE(Tensor::from({0.5F}, {1}).item<bool>());
  EXPECT_FALSE(whole({0}).item<bool>());
  EXPECT_ERROR(bytes({1}).to_vector<bool>(), "the elements are u8, requested as bool");
}

TEST_P(BooleanTest, ArithmeticIsThatOfTruthValues) {
  const Tensor a = truth({true, true, false}), b = truth({true, false, false});
  for (const Tensor& either : {a + b, a | b, maximum(a, b), logical_or(a, b)}) {
    EXPECT_EQ(either.dtype(), DType::boolean);
    EXPECT_EQ(values(either), (Doubles{1, 1, 0}));
  }
  for (const Tensor& both : {a * b, a & b, minimum(a, b), logical_and(a, b)}) {
    EXPECT_EQ(both.dtype(), DType::boolean);
    EXPECT_EQ(values(both), (Doubles{1, 0, 0}));
  }
  EXPECT_EQ(values(a ^ b), (Doubles{0, 1, 0}));
  EXPECT_EQ(values(~a), (Doubles{0, 0, 1}));
  EXPECT_ERROR(a - b, "subtract: both operands are bool");
  EXPECT_ERROR(-a, "negate: input is bool");
  EXPECT_EQ((a + 1).dtype(), DType::i64);
  EXPECT_EQ(values(a + 1), (Doubles{2, 2, 1}));
  EXPECT_EQ((a + true).dtype(), DType::boolean);
  // Sums stay truth values whatever alpha.
  for (const Scalar& alpha : {Scalar(2), Scalar(-1), Scalar(true)}) {
    EXPECT_EQ(add(b, a, alpha).dtype(), DType::boolean);
    EXPECT_EQ(values(add(b, a, alpha)), (Doubles{1, 1, 0}));
    EXPECT_EQ(add(b, true, alpha).dtype(), DType::boolean);
    EXPECT_EQ(values(add(b, true, alpha)), (Doubles{1, 1, 1}));
  }
  for (const Scalar& none : {Scalar(0), Scalar(false)}) {
    EXPECT_EQ(add(b, a, none).dtype(), DType::boolean);
    EXPECT_EQ(values(add(b, a, none)), (Doubles{1, 0, 0}));
    EXPECT_EQ(add(b, true, none).dtype(), DType::boolean);
    EXPECT_EQ(values(add(b, true, none)), (Doubles{1, 0, 0}));
  }
  EXPECT_EQ(add(b, 1, 2).dtype(), DType::i64);
  EXPECT_ERROR(add(a, b, 1.5), "add: alpha is 1.5, expected a whole number for bools");
  EXPECT_ERROR(add(a, true, 1.5), "add: alpha is 1.5, expected a whole number for bools");
  EXPECT_ERROR(sub(a, b, 2), "subtract: both operands are bool");
  EXPECT_ERROR(sub(a, true, 2), "subtract: both operands are bool");
  EXPECT_EQ(values(div(a, 1, {.rounding_mode = Rounding::floor}) + remainder(a, 2)), (Doubles{2, 2, 0}));
  EXPECT_EQ((a + bytes({1, 2, 3})).dtype(), DType::u8);
  EXPECT_EQ((a + whole({1, 2, 3})).dtype(), DType::i64);
  // A number is compared as what it is.
  EXPECT_EQ(values(a == 2), (Doubles{0, 0, 0}));
  EXPECT_EQ(values(a < 0.5), (Doubles{0, 0, 1}));
}

TEST_P(BooleanTest, BytesAreNumbersAndBits) {
  EXPECT_EQ(values(bytes({255, 1}) + 1), (Doubles{0, 2}));
  EXPECT_EQ(values(bytes({255, 1}) + bytes({2, 2})), (Doubles{1, 3}));
  EXPECT_EQ(values(0 - bytes({1})), (Doubles{255}));
  EXPECT_EQ(values(bytes({6}) & bytes({3})), (Doubles{2}));
  EXPECT_EQ(values(bytes({6}) | bytes({3})), (Doubles{7}));
  EXPECT_EQ(values(whole({6}) ^ whole({3})), (Doubles{5}));
  EXPECT_EQ(values(~bytes({6})), (Doubles{249}));
  EXPECT_EQ(values(~whole({6})), (Doubles{-7}));
  EXPECT_EQ(values(pow(bytes({16, 3}), 2)), (Doubles{0, 9}));
  EXPECT_ERROR(bytes({1}) & Tensor::from({0.5F}, {1}).to(device_), "bit_and: inputs are f32, expected bool or whole");
}

// An operation in place keeps its type, also with a number.
TEST_P(BooleanTest, InPlaceNumbersDoNotBecomeTruthValues) {
  const Tensor x = truth({true, false}), n = whole({1});
  EXPECT_ERROR(x.add_(2), "the result is i64, expected bool");
  EXPECT_ERROR(x.mul_(3), "the result is i64, expected bool");
  EXPECT_ERROR(n.sub_(0.5), "i64 with the number -0.5, expected a whole one");
  EXPECT_EQ(x.to_vector<bool>(), (std::vector<bool>{true, false}));
}

TEST_P(BooleanTest, BytesAreMasks) {
  const Tensor x = whole({1, 2, 3});
  EXPECT_EQ(values(masked_fill(x, bytes({0, 1, 7}), 9)), (Doubles{1, 9, 9}));
  EXPECT_EQ(values(where(bytes({0, 1, 7}), x, 0)), (Doubles{0, 2, 3}));
  EXPECT_EQ(values(x[bytes({0, 1, 7})]), (Doubles{2, 3}));
  EXPECT_EQ(any(bytes({0, 2})).dtype(), DType::u8);
  EXPECT_EQ(values(scatter_add(truth({false, true}), 0, whole({0, 0}), truth({true, true}))), (Doubles{1, 1}));
}

}  // namespace
}  // namespace lockstep::testing
