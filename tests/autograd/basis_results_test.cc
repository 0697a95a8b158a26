// More operations of the basis: logical functions, norms, products, padding, sorting, integers, pooling of sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

class BasisResultsTest : public ::testing::Test {
 protected:
  using Doubles = std::vector<double>;
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

  Tensor tensor(const Doubles& values, const Shape& shape, DType dtype = DType::f32) {
    return make_tensor(values, shape, device_, dtype);
  }
  Tensor ids(const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from(values, shape).to(device_);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(BasisResultsTest, LogicalFunctions) {
  const Tensor a = gt(tensor({1, 1, -1, -1}, {4}), 0), b = gt(tensor({1, -1, 1, -1}, {4}), 0);
  EXPECT_EQ(values(logical_and(a, b)), (Doubles{1, 0, 0, 0}));
  EXPECT_EQ(values(logical_or(a, b)), (Doubles{1, 1, 1, 0}));
  EXPECT_EQ(values(logical_xor(a, b)), (Doubles{0, 1, 1, 0}));
  EXPECT_EQ(values(logical_not(a)), (Doubles{0, 0, 1, 1}));
  for (const Tensor& mask : {logical_and(a, b), logical_or(a, b), logical_xor(a, b), logical_not(a)}) {
    EXPECT_EQ(mask.dtype(), DType::boolean);
  }
  // Shapes broadcast; every number but 0 holds, also NaN, as in PyTorch.
  const Tensor x = tensor({0, 0.5, -2, kNan}, {4, 1}), y = ids({0, 7}, {2});
  EXPECT_EQ(values(logical_and(x, y)), (Doubles{0, 0, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(values(logical_or(x, y)), (Doubles{0, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(values(logical_not(x)), (Doubles{1, 0, 0, 0}));
  EXPECT_FALSE(logical_not(as_leaf(tensor({1}, {1}))).requires_grad());
}

TEST_F(BasisResultsTest, AnyAndAll) {
  const Tensor x = gt(tensor({1, 0, 1, 1, 0, 0}, {3, 2}), 0);
  EXPECT_EQ(any(x).shape(), Shape());
  EXPECT_EQ(any(x).dtype(), DType::boolean);
  EXPECT_TRUE(any(x).item<bool>());
  EXPECT_FALSE(all(x).item<bool>());
  EXPECT_EQ(values(any(x, 1)), (Doubles{1, 1, 0}));
  EXPECT_EQ(values(all(x, 1)), (Doubles{0, 1, 0}));
  EXPECT_EQ(values(any(x, 0)), (Doubles{1, 1}));
  EXPECT_EQ(all(x, {0, 1}, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(values(all(ids({1, 2, 0, 3}, {2, 2}), 1)), (Doubles{1, 0}));
  const Tensor none = gt(tensor({}, {2, 0}), 0);
  EXPECT_EQ(values(any(none, 1)), (Doubles{0, 0}));
  EXPECT_EQ(values(all(none, 1)), (Doubles{1, 1}));
}

TEST_F(BasisResultsTest, Log1pNearZeroAndAtItsEnds) {
  const Doubles y = values(log1p(tensor({1e-9, -1, 0, -2, kInfinity}, {5})));
  EXPECT_NEAR(y[0] / 1e-9, 1, 1e-6);
  EXPECT_EQ(y[1], -kInfinity);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], kInfinity);
}

TEST_F(BasisResultsTest, Norms) {
  const Tensor x = tensor({3, -4, 0, 0}, {2, 2});
  EXPECT_EQ(norm(x).shape(), Shape());
  EXPECT_EQ(values(norm(x)), Doubles{5});
  EXPECT_EQ(values(norm(x, 1)), Doubles{7});
  EXPECT_EQ(values(norm(x, kInfinity, 1)), (Doubles{4, 0}));
  EXPECT_NEAR(values(norm(x, 3))[0], std::cbrt(91.0), 1e-5);
  EXPECT_EQ(norm(x, 2, 1, true).shape(), (Shape{2, 1}));
  // The squares are beyond f16.
  EXPECT_NEAR(values(norm(tensor({300, 400}, {2}, DType::f16)))[0], 500, 1);
  Tensor leaf = as_leaf(x.detach());
  sum(norm(leaf, 2, 1)).backward();
  EXPECT_LT(distance(values(leaf.grad()), {0.6, -0.8, 0, 0}), 1e-6);
  EXPECT_ERROR(norm(x, 0.5), "norm: p is 0.5, expected at least 1");
  EXPECT_ERROR(norm(ids({1}, {1})), "expected a floating type");
}

TEST_F(BasisResultsTest, Products) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(values(prod(x)), Doubles{720});
  EXPECT_EQ(prod(x).shape(), Shape());
  EXPECT_EQ(values(prod(x, 0)), (Doubles{4, 10, 18}));
  EXPECT_EQ(values(prod(x, -1)), (Doubles{6, 120}));
  EXPECT_EQ(prod(x, 1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(values(prod(tensor({}, {2, 0}), 1)), (Doubles{1, 1}));
  // Where the product is 0, its derivative by the only 0 is the product of the others.
  Tensor zeros = as_leaf(tensor({2, 0, 3, 0, 5, 0}, {2, 3}));
  sum(prod(zeros, 1)).backward();
  EXPECT_EQ(values(zeros.grad()), (Doubles{0, 6, 0, 0, 0, 0}));
  EXPECT_EQ(values(prod(ids({3, 2}, {2}), 0)), Doubles{6});
}

// The products of some of the factors are beyond f32.
TEST_F(BasisResultsTest, ProductsAreRoundedOnce) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Tensor x = as_leaf(tensor({0x1p100, 0x1p-100, 0x1p100, 0x1p-100}, {4}, dtype));
    const Tensor y = prod(x);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(values(y), Doubles{1});
    y.backward();
    EXPECT_EQ(values(x.grad()), (Doubles{0x1p-100, 0x1p100, 0x1p-100, 0x1p100}));
    Tensor z = as_leaf(tensor({0x1p100, 0x1p100, 0x1p-100, 0x1p-100}, {4}, dtype));
    const Tensor so_far = cumprod(z, 0);
    EXPECT_EQ(so_far.dtype(), dtype);
    EXPECT_EQ(values(so_far), (Doubles{0x1p100, kInfinity, 0x1p100, 1}));
    so_far.narrow(0, 3, 1).backward();
    EXPECT_EQ(values(z.grad()), (Doubles{0x1p-100, 0x1p-100, 0x1p100, 0x1p100}));
  }
  Tensor decimal = as_leaf(tensor({1e30, 1e-30, 1e30, 1e-30}, {4}));
  const Tensor one = prod(decimal, 0);
  EXPECT_NEAR(values(one)[0], 1, 1e-6);
  one.backward();
  for (const double slope : values(decimal.grad() * decimal.detach())) EXPECT_NEAR(slope, 1, 1e-6);
}

TEST_F(BasisResultsTest, Padding) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(values(pad(x, {1, 0})), (Doubles{0, 1, 2, 0, 3, 4}));
  EXPECT_EQ(values(pad(x, {0, 1, 1, 0}, 9)), (Doubles{9, 9, 9, 1, 2, 9, 3, 4, 9}));
  EXPECT_EQ(values(pad(x, {-1, 0, 0, 1})), (Doubles{2, 4, 0}));
  EXPECT_EQ(values(pad(x, {})), values(x));
  EXPECT_EQ(values(pad(ids({5}, {1}), {1, 1}, -1)), (Doubles{-1, 5, -1}));
  EXPECT_EQ(pad(tensor({}, {0, 2}), {0, 0, 1, 2}, 7).shape(), (Shape{3, 2}));
  EXPECT_ERROR(pad(x, {1}), "pad: 1 widths for [2, 2], expected two for each of at most 2 axes");
  EXPECT_ERROR(pad(x, {0, 0, 0, 0, 1, 1}), "pad: 6 widths for [2, 2], expected two for each of at most 2 axes");
  EXPECT_ERROR(pad(x, {-2, -1}), "pad: widths -2 and -1 remove more than the 2 elements of axis 1 of [2, 2]");
}

TEST_F(BasisResultsTest, Sorting) {
  const Tensor x = tensor({2, kNan, 1, 2, -kInfinity, 0, 3, 3}, {2, 4});
  const SortResult up = sort(x), down = sort(x, 1, true);
  EXPECT_EQ(values(up.indices), (Doubles{2, 0, 3, 1, 0, 1, 2, 3}));
  EXPECT_EQ(values(down.indices), (Doubles{1, 0, 3, 2, 2, 3, 1, 0}));
  EXPECT_EQ(values(up.values)[0], 1);
  EXPECT_EQ(up.indices.dtype(), DType::i64);
  EXPECT_EQ(values(argsort(tensor({3, 1, 2, 0, 5, 4}, {3, 2}), 0)), (Doubles{1, 1, 0, 0, 2, 2}));
  const SortResult two = topk(x, 2), least = topk(x, 1, 0, false);
  EXPECT_EQ(values(two.indices), (Doubles{1, 0, 2, 3}));
  EXPECT_EQ(two.values.shape(), (Shape{2, 2}));
  EXPECT_EQ(values(least.values), (Doubles{-kInfinity, 0, 1, 2}));
  EXPECT_EQ(values(sort(gt(x, 1)).values), (Doubles{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(topk(x, 0).values.shape(), (Shape{2, 0}));
  EXPECT_EQ(sort(tensor({}, {2, 0})).indices.shape(), (Shape{2, 0}));
  EXPECT_FALSE(argsort(as_leaf(tensor({1, 2}, {2}))).requires_grad());
  EXPECT_ERROR(topk(x, 5), "topk: 5 elements along axis 1 of [2, 4], expected 0 to 4");
  EXPECT_EQ(values(sort(ids({2, 1}, {2})).values), (Doubles{1, 2}));
}

// labels + 1, exactly.
TEST_F(BasisResultsTest, IntegerArithmetic) {
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Tensor x = ids({1, -2, large}, {3});
  const auto numbers = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  using Integers = std::vector<std::int64_t>;
  EXPECT_EQ(numbers(x + 1), (Integers{2, -1, large + 1}));
  EXPECT_EQ(numbers(1 - x), (Integers{0, 3, 1 - large}));
  EXPECT_EQ(numbers(x * 2 - 3), (Integers{-1, -7, 2 * large - 3}));
  EXPECT_EQ(numbers(-x), (Integers{-1, 2, -large}));
  EXPECT_EQ(numbers(x + ids({10}, {1})), (Integers{11, 8, large + 10}));
  EXPECT_EQ(numbers(maximum(x, ids({0}, {1}))), (Integers{1, 0, large}));
  EXPECT_EQ((x + 1).dtype(), DType::i64);
}

TEST_F(BasisResultsTest, WhatIntegersHaveNotNamesCast) {
  const Tensor x = ids({1, 2}, {2});
  EXPECT_ERROR(x * 0.5, "affine: i64 with the number 0.5, expected a whole one: cast() the tensor to a floating type");
  EXPECT_ERROR(gelu(x), "gelu: input is i64, expected a floating type: cast() it");
  EXPECT_ERROR((x > 1) - (x > 1), "subtract: both operands are bool, expected a number: cast() one, or use ^");
}

// Types as torch.result_type() has them. operations.json has values and gradients.
TEST_F(BasisResultsTest, TypesArePromoted) {
  const Tensor whole = ids({3, -4}, {2}), mask = whole > 0, x = tensor({0.5, 2}, {2});
  const auto as = [&](DType dtype) { return x.to(dtype); };
  EXPECT_EQ(values(x + whole), (Doubles{3.5, -2}));
  EXPECT_EQ((as(DType::bf16) * whole).dtype(), DType::bf16);
  EXPECT_EQ((mask * as(DType::f16)).dtype(), DType::f16);
  EXPECT_EQ(values(mask * whole), (Doubles{3, 0}));
  EXPECT_EQ((mask + whole).dtype(), DType::i64);
  EXPECT_EQ((as(DType::f64) - x).dtype(), DType::f64);
  EXPECT_EQ((as(DType::bf16) * as(DType::f16)).dtype(), DType::f32);
  EXPECT_EQ(values(whole / 2), (Doubles{1.5, -2}));
  EXPECT_EQ((1 / whole).dtype(), DType::f32);
  EXPECT_EQ(values(sqrt(mask)), (Doubles{1, 0}));
  EXPECT_EQ(where(mask, whole, x).dtype(), DType::f32);
  // Quotients have the type of the floating operand, and its digits.
  EXPECT_EQ((whole / as(DType::bf16)).dtype(), DType::bf16);
  EXPECT_EQ(atan2(as(DType::f16), whole).dtype(), DType::f16);
  EXPECT_EQ(values(ids({(1 << 24) + 1}, {1}) / tensor({1}, {1}).to(DType::f64)), Doubles{(1 << 24) + 1});
  // A tensor without axes widens no floating type, but makes whole numbers floating.
  const Tensor number = tensor({2}, {1}).reshape({}).to(DType::f64);
  EXPECT_EQ((x * number).dtype(), DType::f32);
  EXPECT_EQ((number - as(DType::f16)).dtype(), DType::f16);
  EXPECT_EQ((whole * number).dtype(), DType::f64);
  // i64 is compared with f32 in f32, as in PyTorch.
  EXPECT_EQ(values(ids({(1 << 24) + 1}, {1}) == tensor({1 << 24}, {1})), Doubles{1});
  Tensor leaf = as_leaf(x.to(DType::f16));
  sum(leaf * tensor({4, 8}, {2}) + whole).backward();
  EXPECT_EQ(leaf.grad().dtype(), DType::f16);
  EXPECT_EQ(values(leaf.grad()), (Doubles{4, 8}));
}

// An operation in place keeps the type, and refuses a result that it cannot hold.
TEST_F(BasisResultsTest, OperationsInPlaceKeepTheType) {
  Tensor whole = ids({3, -4}, {2}), x = tensor({0.5, 2}, {2});
  const std::string kept = "the result is f32, expected i64: assign it to another tensor, or cast() the operand";
  EXPECT_ERROR(whole += x, kept);
  EXPECT_ERROR(whole.mul_(x), kept);
  EXPECT_ERROR(whole /= 2, kept);
  EXPECT_ERROR(whole.div_(2), kept);
  EXPECT_ERROR(whole[1] += x[0], kept);
  x += whole;
  EXPECT_EQ(x.dtype(), DType::f32);
  EXPECT_EQ(values(x), (Doubles{3.5, -2}));
  x.mul_(x.to(DType::f64));
  EXPECT_EQ(values(x), (Doubles{12.25, 4}));
  x -= x.to(DType::f64);
  EXPECT_EQ(x.dtype(), DType::f32);
}

TEST_F(BasisResultsTest, TheOnlyElementNeedsNoType) {
  const Tensor x = tensor({0.1, 2}, {2});
  EXPECT_EQ(x[0].item(), static_cast<double>(0.1F));
  EXPECT_EQ(x.to(DType::f64)[0].item(), x[0].item());
  EXPECT_EQ(x.to(DType::bf16)[1].item(), 2);
  EXPECT_EQ(sum(x > 1).item(), 1);
  EXPECT_EQ((x > 1)[1].item(), 1);
  EXPECT_ERROR(x.item(), "item: 2 elements, expected 1");
  EXPECT_ERROR(ids({(std::int64_t{1} << 53) + 1}, {1}).item(),
               "item: 9007199254740993 is no double, expected item<std::int64_t>()");
  EXPECT_ERROR(ids({std::numeric_limits<std::int64_t>::max()}, {1}).item(), "is no double");
}

TEST_F(BasisResultsTest, OffsetsOfBagsAreChecked) {
  const Tensor n = ids({0, 1, 1}, {3}), weight = tensor({1, 2, 3, 4}, {2, 2});
  const auto at = [&](const std::vector<std::int64_t>& offsets) {
    return embedding_bag(n, weight, {.offsets = ids(offsets, {std::ssize(offsets)})});
  };
  EXPECT_ERROR(embedding_bag(n, weight), "the offsets of an input [3] i64");
  EXPECT_ERROR(embedding_bag(n, weight, {.offsets = weight[0]}), "expected i64 [bags]");
  EXPECT_ERROR(embedding_bag(n.reshape({1, 3}), weight, {.offsets = n}), "offsets beside an input [1, 3] i64");
  EXPECT_ERROR(at({1, 2}), "embedding_bag: the first offset is 1, expected 0");
  EXPECT_ERROR(at({0, 2, 1}), "embedding_bag: an offset of 1 after 2, expected ascending ones up to 3");
  EXPECT_ERROR(at({0, 4}), "embedding_bag: an offset of 3 after 4");
  EXPECT_ERROR(embedding_bag(n, weight, {.offsets = ids({0, 2}, {2}), .include_last_offset = true}),
               "embedding_bag: the last offset is 2, expected the end of the 3 numbers");
  EXPECT_EQ(values(at({0, 1, 3})), (Doubles{1, 2, 3, 4, 0, 0}));
  // Bags without numbers, and no bags.
  for (const BagMode mode : {BagMode::sum, BagMode::mean, BagMode::max}) {
    const Tensor leaf = as_leaf(weight.detach());
    const Tensor empty = embedding_bag(ids({}, {0}), leaf, {.mode = mode, .offsets = ids({0, 0}, {2})});
    EXPECT_EQ(values(empty), (Doubles{0, 0, 0, 0}));
    sum(empty).backward();
    EXPECT_EQ(values(leaf.grad()), (Doubles{0, 0, 0, 0}));
    EXPECT_EQ(embedding_bag(ids({}, {0}), weight, {.mode = mode, .offsets = ids({}, {0})}).shape(), (Shape{0, 2}));
  }
}

TEST_F(BasisResultsTest, PoolingOfSequences) {
  const Tensor x = tensor({1, 3, 2, 5, 4, 0}, {1, 1, 6});
  EXPECT_EQ(values(max_pool1d(x)), (Doubles{3, 5, 4}));
  // The stride is the kernel's, as in PyTorch.
  EXPECT_EQ(values(max_pool1d(x, {.kernel_size = 3})), (Doubles{3, 5}));
  EXPECT_LT(distance(values(avg_pool1d(x, {.kernel_size = 3, .stride = 2, .padding = 1})), {4.0 / 3, 10.0 / 3, 3}),
            1e-6);
  EXPECT_EQ(max_pool2d(tensor(Doubles(81, 1), {1, 1, 9, 9}), {.kernel_size = 3}).shape(), (Shape{1, 1, 3, 3}));
  EXPECT_ERROR(max_pool1d(x.reshape({6})), "max_pool1d: input is [6]");
  EXPECT_ERROR(avg_pool1d(x, {.kernel_size = 7}),
               "avg_pool1d: the window (7 long) does not fit the padded input (6 long)");
  EXPECT_ERROR(max_pool1d(x, {.padding = 2}),
               "max_pool1d: kernel 2, stride 2, padding 2, expected at least 1, 1 and 0");
}

// On the batch axis, operations that need all samples in one place say how to get them there.
TEST_F(BasisResultsTest, SamplesInSeveralPlaces) {
  const std::vector<Slot> slots{{0, device_}, {1, device_}};
  const Tensor x =
      scatter(tensor({4, 3, 2, 1}, {2, 2}), std::make_shared<Placement>(std::vector<std::int64_t>{1, 1}, slots));
  const std::string way_out = "gather() puts them together, per_shard() computes each shard alone";
  EXPECT_ERROR(sort(x, 0),
               fmt::format("sort: the samples of [2, 2] f32 on {} are on axis 0, and it would sort them: {}",
                           device_.name(), way_out));
  EXPECT_ERROR(topk(x, 1, 0), way_out);
  EXPECT_ERROR(pad(x, {0, 0, 1, 1}), "and padding belongs to none of them: " + way_out);
  EXPECT_ERROR(prod(x, 0), "and it would multiply them: " + way_out);
  EXPECT_ERROR(prod(x), "and it would multiply them: " + way_out);
  EXPECT_EQ(values(sort(x, 1).values), (Doubles{3, 4, 1, 2}));
  EXPECT_EQ(values(pad(x, {1, 0}, 9)), (Doubles{9, 4, 3, 9, 2, 1}));
  EXPECT_EQ(values(prod(x, 1)), (Doubles{12, 2}));
  EXPECT_EQ(values(norm(x, 1, 0)), (Doubles{6, 4}));
  EXPECT_EQ(values(norm(x, kInfinity)), Doubles{4});
  EXPECT_EQ(values(any(gt(x, 2), 0)), (Doubles{1, 1}));
  EXPECT_EQ(values(all(gt(x, 2), 0)), (Doubles{0, 0}));
  EXPECT_EQ(values(all(gt(x, 0))), Doubles{1});
  EXPECT_EQ(values(logical_and(gt(x, 1), lt(x, 4))), (Doubles{0, 1, 1, 0}));
}

}  // namespace
}  // namespace lockstep::testing
