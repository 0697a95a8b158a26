// Operations of the basis: results and errors that the tests of gradients do not cover.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

class BasisTest : public ::testing::Test {
 protected:
  Tensor tensor(const Doubles& values, const Shape& shape, DType dtype = DType::f32) {
    return make_tensor(values, shape, device_, dtype);
  }
  Tensor ids(const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from(values, shape).to(device_);
  }
  // 0, 1, 2, ...
  Tensor counting(const Shape& shape, DType dtype = DType::f32) {
    Doubles all(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
    return tensor(all, shape, dtype);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(BasisTest, Comparisons) {
  const Tensor a = tensor({1, 2, 3}, {3}), b = tensor({2}, {1});
  EXPECT_EQ(eq(a, b).dtype(), DType::boolean);
  EXPECT_EQ(values(eq(a, b)), (Doubles{0, 1, 0}));
  EXPECT_EQ(values(ne(a, b)), (Doubles{1, 0, 1}));
  EXPECT_EQ(values(lt(a, b)), (Doubles{1, 0, 0}));
  EXPECT_EQ(values(le(a, b)), (Doubles{1, 1, 0}));
  EXPECT_EQ(values(gt(a, b)), (Doubles{0, 0, 1}));
  EXPECT_EQ(values(ge(a, b)), (Doubles{0, 1, 1}));
  EXPECT_EQ(values(eq(a, 2)), (Doubles{0, 1, 0}));
  EXPECT_EQ(values(ne(a, 2)), (Doubles{1, 0, 1}));
  EXPECT_EQ(values(lt(a, 2)), (Doubles{1, 0, 0}));
  EXPECT_EQ(values(le(a, 2)), (Doubles{1, 1, 0}));
  EXPECT_EQ(values(gt(a, 2)), (Doubles{0, 0, 1}));
  EXPECT_EQ(values(ge(a, 2)), (Doubles{0, 1, 1}));
  EXPECT_EQ(values(eq(ids({4, 5}, {2}), ids({5, 5}, {2}))), (Doubles{0, 1}));
  EXPECT_FALSE(gt(as_leaf(a.detach()), 1).requires_grad());
  EXPECT_EQ(values(eq(a, ids({2}, {1}))), (Doubles{0, 1, 0}));
}

TEST_F(BasisTest, WhereNeedsAMask) {
  const Tensor a = tensor({1, 2}, {2});
  EXPECT_ERROR(where(a, a, a), "where: the condition is f32, expected bool, as comparisons return, or u8");
  EXPECT_ERROR(where(gt(a, 0), a, tensor({1, 2, 3}, {3})), "where: shapes [2] and [3] do not broadcast");
  EXPECT_EQ(values(where(gt(a, 1), ids({5, 6}, {2}), ids({7}, {1}))), (Doubles{7, 6}));
}

// Both get half: the sum counts once, as in PyTorch.
TEST_F(BasisTest, EqualOperandsShareTheGradient) {
  for (auto f : {maximum, minimum}) {
    Tensor a = as_leaf(tensor({1, 2, 3}, {3})), b = as_leaf(tensor({2}, {1}));
    sum(f(a, b)).backward();
    Doubles all = values(a.grad());
    all.push_back(values(b.grad())[0]);
    EXPECT_EQ(all, f == maximum ? (Doubles{0, 0.5, 1, 1.5}) : (Doubles{1, 0.5, 0, 1.5}));
  }
  for (auto f : {amax, amin}) {
    Tensor x = as_leaf(tensor({2, 2, 2, 2}, {4}));
    f(x, {}, false).backward();
    EXPECT_EQ(values(x.grad()), (Doubles{0.25, 0.25, 0.25, 0.25}));
  }
  // max() along an axis gives it to the first one.
  Tensor x = as_leaf(tensor({1, 2, 2}, {1, 3}));
  sum(max(x, 1).values).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 1, 0}));
}

TEST_F(BasisTest, ZeroPowersHaveAGradient) {
  Tensor x = as_leaf(tensor({0, 2, 0}, {3})), y = as_leaf(tensor({0, 0, 3}, {3}));
  sum(pow(x, y)).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0}));
  EXPECT_NEAR(values(y.grad())[1], std::log(2.0), 1e-6);
  EXPECT_EQ(values(y.grad())[0], 0);
  EXPECT_EQ(values(y.grad())[2], 0);
  x.zero_grad();
  sum(pow(x, 0)).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0}));
}

TEST_F(BasisTest, ClampNeedsABound) {
  const Tensor x = tensor({-1, 0.5, 7}, {3});
  EXPECT_EQ(values(clamp(x, 0)), (Doubles{0, 0.5, 7}));
  EXPECT_EQ(values(clamp(x, {}, 1)), (Doubles{-1, 0.5, 1}));
  EXPECT_EQ(values(clamp(x, 0, 1)), (Doubles{0, 0.5, 1}));
  EXPECT_ERROR(clamp(x, {}), "clamp: expected min, max, or both, found neither");
  EXPECT_ERROR(softplus(x, 0), "softplus: beta 0, expected above 0");
}

TEST_F(BasisTest, ReductionsHavePyTorchsShapes) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(sum(x, 1).shape(), (Shape{2, 4}));
  EXPECT_EQ(sum(x, {0, -1}).shape(), (Shape{3}));
  EXPECT_EQ(sum(x, {0, -1}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x, {}).shape(), Shape());
  EXPECT_EQ(values(sum(x, {0, 2})), (Doubles{60, 92, 124}));
  EXPECT_EQ(values(mean(x, 1))[0], 4);
  EXPECT_EQ(values(var(x, 1))[0], 16);
  EXPECT_NEAR(values(lockstep::std(x, 1, {.correction = 0}))[0], std::sqrt(32.0 / 3), 1e-6);
  EXPECT_EQ(values(amin(x, {1, 2})), (Doubles{0, 12}));
  EXPECT_EQ(amax(x).item<float>(), 23);
  EXPECT_EQ(values(cumsum(x, 1)).at(11), 21);
  const Tensor one = var(counting({1, 2}), 0);
  EXPECT_NE(values(one)[0], values(one)[0]);
  EXPECT_ERROR(sum(x, 3), "sum: axis 3 of shape [2, 3, 4], expected -3 to 2");
  EXPECT_ERROR(sum(x, {1, -2}), "sum: axis -2 is named twice");
  EXPECT_ERROR(amax(tensor({}, {2, 0}), 1), "amax: no elements along the axes of [2, 0]");
}

TEST_F(BasisTest, ArgmaxCountsAsPyTorch) {
  const Tensor x = tensor({1, 5, 3, 4, 9, 2}, {2, 3});
  EXPECT_EQ(argmax(x).item<std::int64_t>(), 4);
  EXPECT_EQ(argmax(x).shape(), Shape());
  EXPECT_EQ(values(argmax(x, 0)), (Doubles{1, 1, 0}));
  EXPECT_EQ(values(argmax(x, 1)), (Doubles{1, 1}));
  EXPECT_EQ(values(argmin(x, -1)), (Doubles{0, 2}));
  EXPECT_EQ(argmax(x, 1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(argmax(x, {}, true).shape(), (Shape{1, 1}));
  const MaxResult largest = max(x, 0), smallest = min(x, 1, true);
  EXPECT_EQ(values(largest.values), (Doubles{4, 9, 3}));
  EXPECT_EQ(values(largest.indices), (Doubles{1, 1, 0}));
  EXPECT_EQ(values(smallest.values), (Doubles{1, 2}));
  EXPECT_EQ(smallest.values.shape(), (Shape{2, 1}));
  EXPECT_ERROR(argmax(tensor({}, {2, 0}), 1), "argmax: no elements along axis 1 of [2, 0]");
}

TEST_F(BasisTest, LogsumexpOfInfinities) {
  const Tensor x = tensor({-kInfinity, -kInfinity, 0, kInfinity, 1000, 1000, kNan, 0}, {4, 2});
  const Doubles y = values(logsumexp(x, 1));
  EXPECT_EQ(y[0], -kInfinity);
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_NEAR(y[2], 1000 + std::log(2.0), 1e-4);
  EXPECT_NE(y[3], y[3]);
}

TEST_F(BasisTest, ShapesAndPieces) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(permute(x, {2, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(unsqueeze(x, -1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(squeeze(counting({1, 2, 1})).shape(), (Shape{2}));
  EXPECT_EQ(squeeze(counting({1, 2, 1}), {0, 1}).shape(), (Shape{2, 1}));
  EXPECT_EQ(expand(counting({3, 1}), {2, -1, 4}).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(flatten(x).shape(), (Shape{24}));
  EXPECT_EQ(flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(x, 0, 1).shape(), (Shape{6, 4}));
  EXPECT_EQ(values(x.select(2, -1)), (Doubles{3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(values(slice(x, 1, 1, 100)).size(), 16U);
  EXPECT_EQ(slice(x, 1, -2, -1).shape(), (Shape{2, 1, 4}));
  EXPECT_EQ(slice(x, 1, 2, 1).shape(), (Shape{2, 0, 4}));
  std::vector<std::int64_t> sizes;
  for (const Tensor& part : chunk(x, 3, 2)) sizes.push_back(part.size(2));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 2}));
  sizes.clear();
  for (const Tensor& part : split(x, 2, 1)) sizes.push_back(part.size(1));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{2, 3, 4, 2}));
  EXPECT_ERROR(split(x, {1, 1}, 1), "split: the sizes add up to 2, expected 3, the extent of axis 1 of [2, 3, 4]");
  EXPECT_ERROR(x.select(1, 3), "select: index 3 is out of range for axis 1 of [2, 3, 4]");
  EXPECT_ERROR(x.narrow(1, 2, 2), "slice: 2 elements from 2 on, 1 apart, of axis 1 of [2, 3, 4]");
  EXPECT_ERROR(unsqueeze(x, 4), "unsqueeze: axis 4 of shape [2, 3, 4], expected -4 to 3");
  EXPECT_ERROR(
      stack({x, counting({2})}),
      fmt::format("stack: found [2] f32 on {0} and [2, 3, 4] f32 on {0}, expected equal shapes", device_.name()));
  EXPECT_ERROR(flatten(x, 2, 1), "flatten: axes 2 to 1, expected start_dim before end_dim");
  EXPECT_ERROR(slice(x, 0, 0, 2, 0), "slice: step 0, expected at least 1");
}

// In host memory, too: data sets take rows apart.
TEST_F(BasisTest, NarrowWorksOnTheHost) {
  Tensor x = as_leaf(Tensor::from(Doubles{1, 2, 3, 4, 5, 6}, {1, 3, 2}));
  const Tensor y = x.narrow(1, 1, 2);
  EXPECT_EQ(y.to_vector<double>(), (Doubles{3, 4, 5, 6}));
  sum(y.to(device_) * 2).backward();
  EXPECT_EQ(values(x.grad().to(device_)), (Doubles{0, 0, 2, 2, 2, 2}));
}

TEST_F(BasisTest, Triangles) {
  EXPECT_EQ(values(triu(counting({3, 3}), 0)), (Doubles{0, 1, 2, 0, 4, 5, 0, 0, 8}));
  EXPECT_EQ(values(tril(counting({3, 3}), -1)), (Doubles{0, 0, 0, 3, 0, 0, 6, 7, 0}));
  EXPECT_EQ(values(triu(counting({2, 3}), 1)), (Doubles{0, 1, 2, 0, 0, 5}));
  EXPECT_EQ(values(tril(ids({1, 2, 3, 4}, {2, 2}))), (Doubles{1, 0, 3, 4}));
  EXPECT_ERROR(tril(counting({3})), "tril: the input is [3], expected at least 2 axes");
}

TEST_F(BasisTest, Indices) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(take_along_dim(x, ids({2, 0}, {2, 1}), 1)), (Doubles{2, 3}));
  EXPECT_EQ(values(index_select(x, 1, ids({2, 2, 0}, {3}))), (Doubles{2, 2, 0, 5, 5, 3}));
  EXPECT_EQ(values(scatter_add(x, 1, ids({1, 1, 0, 2, 2, 2}, {2, 3}), counting({2, 3}))), (Doubles{2, 2, 2, 3, 4, 17}));
  EXPECT_EQ(embedding(ids({0, 1, 1, 0}, {2, 2}), x).shape(), (Shape{2, 2, 3}));
  const Tensor hot = one_hot(ids({2, 0}, {2}), 3);
  EXPECT_EQ(hot.dtype(), DType::i64);
  EXPECT_EQ(values(hot), (Doubles{0, 0, 1, 1, 0, 0}));
  EXPECT_ERROR(values(one_hot(ids({3}, {1}), 3)), "index: 3 at place 0 is outside [0, 3)");
  EXPECT_ERROR(values(embedding(ids({2}, {1}), x)), "index: 2 at place 0 is outside [0, 2)");
  EXPECT_ERROR(embedding(x, x), fmt::format("embedding: input is [2, 3] f32 on {0}, expected i64", device_.name()));
  EXPECT_ERROR(embedding(ids({0}, {1}), counting({3})),
               "embedding: weight is [3], expected 2 axes (numbers, features)");
  EXPECT_ERROR(embedding(ids({0}, {1}), x, 2), "embedding: padding_idx 2 of 2 rows, expected one of them");
  EXPECT_ERROR(index_select(x, 0, ids({0}, {1, 1})), "index_select: the index is [1, 1], expected one axis");
  EXPECT_ERROR(take_along_dim(x, ids({0}, {1}), 0),
               "take_along_dim: tensors of shapes [1] and [2, 3], expected the same number of axes");
}

// The index alone says what is added: nothing broadcasts, as in PyTorch.
TEST_F(BasisTest, ScatterAddGoesAsFarAsItsIndex) {
  Tensor x = as_leaf(counting({2, 3})), src = as_leaf(tensor({10, 20, 30, 40, 50, 60}, {2, 3}));
  const Tensor y = scatter_add(x, 1, ids({2, 2}, {1, 2}), src);
  EXPECT_EQ(values(y), (Doubles{0, 1, 32, 3, 4, 5}));
  sum(y * counting({2, 3})).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(src.grad()), (Doubles{2, 2, 0, 0, 0, 0}));
  EXPECT_EQ(values(scatter_add(x, 0, ids({1, 1, 0}, {3, 1}), counting({4, 3}))), (Doubles{6, 1, 2, 6, 4, 5}));
  EXPECT_EQ(values(scatter_add(x, 0, ids({}, {0, 3}), src)), values(x));
  EXPECT_ERROR(scatter_add(counting({1, 3}), 1, ids({0, 0}, {2, 1}), counting({2, 1})),
               "scatter_add: the index is [2, 1], expected at most the source's extents, [2, 1], and, except on axis "
               "1, at most [1, 3]");
  EXPECT_ERROR(scatter_add(x, 1, ids({0, 0}, {2, 1}), counting({1, 1})),
               "scatter_add: the index is [2, 1], expected at most the source's extents, [1, 1]");
}

// Masks are counted, as in PyTorch.
TEST_F(BasisTest, Masks) {
  const Tensor labels = ids({3, 1, 2, 3, 0, 3}, {2, 3}), right = eq(labels, 3);  // 1 0 0, 1 0 1
  EXPECT_EQ(sum(right).dtype(), DType::i64);
  EXPECT_EQ(sum(right).item<std::int64_t>(), 3);
  EXPECT_EQ(values(sum(right, 1)), (Doubles{1, 2}));
  EXPECT_EQ(sum(tensor(Doubles(300, 255), {300}, DType::u8)).item<std::int64_t>(), 76'500);
  EXPECT_EQ(values(cumsum(right, 1)), (Doubles{1, 1, 1, 1, 1, 2}));
  EXPECT_EQ(cumsum(right, 1).dtype(), DType::i64);
  EXPECT_EQ(values(argmax(right, 1)), (Doubles{0, 0}));
  EXPECT_EQ(values(argmin(right, 1)), (Doubles{1, 1}));
  EXPECT_EQ(values(amax(right, 0)), (Doubles{1, 0, 1}));
  EXPECT_EQ(values(amin(right, 1)), (Doubles{0, 0}));
  EXPECT_EQ(amin(right, 1).dtype(), DType::boolean);
  const MaxResult smallest = min(right, 1);
  EXPECT_EQ(values(smallest.values), (Doubles{0, 0}));
  EXPECT_EQ(smallest.values.dtype(), DType::boolean);
  EXPECT_EQ(values(smallest.indices), (Doubles{1, 1}));
  EXPECT_ERROR(mean(labels), fmt::format("mean: input is [2, 3] i64 on {0}, expected a floating type", device_.name()));
  EXPECT_ERROR(mean(labels, 1),
               fmt::format("mean: input is [2, 3] i64 on {0}, expected a floating type", device_.name()));
  EXPECT_ERROR(var(right), fmt::format("var: input is [2, 3] bool on {0}, expected a floating type", device_.name()));
}

// f64 rounds numbers beyond 2^53.
TEST_F(BasisTest, IntegersAreReducedExactly) {
  using Integers = std::vector<std::int64_t>;
  const auto found = [](const Tensor& x) { return x.to_vector<std::int64_t>(); };
  const std::int64_t large = (std::int64_t{1} << 53) + 1, least = std::numeric_limits<std::int64_t>::min();
  const Tensor x = ids({large, 2, -large, large + 1, least, 5}, {2, 3});
  EXPECT_EQ(found(sum(x.narrow(1, 0, 2))), Integers{large + 3 + least + large});
  EXPECT_EQ(sum(x).shape(), (Shape{1}));
  EXPECT_EQ(found(sum(x, 0)), (Integers{2 * large + 1, 2 + least, 5 - large}));
  EXPECT_EQ(found(sum_to(x.narrow(1, 0, 1), {1, 1})), Integers{2 * large + 1});
  EXPECT_EQ(found(cumsum(x, 1)), (Integers{large, large + 2, 2, large + 1, large + 1 + least, large + 6 + least}));
  EXPECT_EQ(found(amax(x, 1)), (Integers{large, large + 1}));
  EXPECT_EQ(found(amin(x, 1)), (Integers{-large, least}));
  EXPECT_EQ(found(max(x)), Integers{large + 1});
  EXPECT_EQ(found(min(x)), Integers{least});
  EXPECT_EQ(found(max(x, 0).values), (Integers{large + 1, 2, 5}));
  EXPECT_EQ(found(min(x, 0).indices), (Integers{0, 1, 0}));
  EXPECT_EQ(found(argmax(x)), Integers{3});
  EXPECT_EQ(found(argmin(x, 1)), (Integers{2, 1}));
  EXPECT_EQ(found(sort(x, 1).values), (Integers{-large, 2, large, least, 5, large + 1}));
  EXPECT_EQ(found(argsort(x, 1, true)), (Integers{0, 1, 2, 0, 2, 1}));
  EXPECT_EQ(found(topk(x, 1, 1, false).values), (Integers{-large, least}));
  EXPECT_EQ(found(median(x, 1).values), (Integers{2, 5}));
  EXPECT_EQ(found(prod(x.narrow(1, 1, 1), 0)), Integers{0});
  EXPECT_EQ(prod(eq(x, 2), 1).dtype(), DType::i64);
  EXPECT_EQ(found(cumprod(ids({2, 3, 4}, {3}), 0)), (Integers{2, 6, 24}));
  EXPECT_EQ(found(div(ids({7, -7}, {2}), 2, {.rounding_mode = Rounding::floor})), (Integers{3, -4}));
  EXPECT_EQ(found(remainder(ids({7, -7}, {2}), ids({4}, {1}))), (Integers{3, 1}));
  EXPECT_EQ(found(floor(x)), found(x));
  EXPECT_ERROR(found(div(x, ids({0}, {1}), {.rounding_mode = Rounding::trunc})), "element 0 of the divisor is 0");
  EXPECT_ERROR(remainder(x, 0), fmt::format("remainder: [2, 3] i64 on {} by 0", device_.name()));
  EXPECT_EQ(div(x, x).dtype(), DType::f32);
}

TEST_F(BasisTest, NumbersThatAreNotFinite) {
  const Tensor x = tensor({kNan, kInfinity, -kInfinity, 2}, {4});
  EXPECT_EQ(values(isnan(x)), (Doubles{1, 0, 0, 0}));
  EXPECT_EQ(values(isinf(x)), (Doubles{0, 1, 1, 0}));
  EXPECT_EQ(values(isfinite(x)), (Doubles{0, 0, 0, 1}));
  EXPECT_EQ(values(isfinite(ids({3}, {1}))), Doubles{1});
  EXPECT_EQ(values(isnan(ids({3}, {1}))), Doubles{0});
  const double most = std::numeric_limits<float>::max();
  EXPECT_EQ(values(nan_to_num(x)), (Doubles{0, most, -most, 2}));
  EXPECT_EQ(values(nan_to_num(x, 1, 2, 3)), (Doubles{1, 2, 3, 2}));
  const Tensor half = tensor({kNan, kInfinity, -kInfinity, 2}, {4}, DType::f16);
  EXPECT_EQ(values(nan_to_num(half)), (Doubles{0, 65504, -65504, 2}));
  for (double y : values(clamp(tensor({1, 2}, {2}), tensor({kNan}, {1}), {}))) EXPECT_NE(y, y);
  EXPECT_ERROR(clamp(x, Tensor(), Tensor()), "clamp: expected min, max, or both, found neither");
  EXPECT_ERROR(masked_fill(x, isnan(x), x), "masked_fill: the value is [4], expected one element");
}

TEST_F(BasisTest, SizesThatDependOnData) {
  const Tensor x = tensor({3, 0, kNan, 3, -1, 0}, {2, 3});
  EXPECT_EQ(values(masked_select(x, gt(x, -2))), (Doubles{3, 0, 3, -1, 0}));
  EXPECT_EQ(values(masked_select(tensor({1, 2}, {2}), tensor({1, 0}, {2, 1}, DType::u8))), (Doubles{1, 2}));
  EXPECT_EQ(masked_select(x, gt(x, 9)).shape(), Shape{0});
  EXPECT_EQ(values(nonzero(x)), (Doubles{0, 0, 0, 2, 1, 0, 1, 1}));
  EXPECT_EQ(nonzero(x).shape(), (Shape{4, 2}));
  EXPECT_EQ(nonzero(tensor({5}, {})).shape(), (Shape{1, 0}));
  const auto [found, inverse, counts] = unique(ids({7, 2, 7, -3, 2, 7}, {2, 3}));
  EXPECT_EQ(values(found), (Doubles{-3, 2, 7}));
  EXPECT_EQ(values(inverse), (Doubles{2, 1, 2, 0, 1, 2}));
  EXPECT_EQ(inverse.shape(), (Shape{2, 3}));
  EXPECT_EQ(values(counts), (Doubles{1, 2, 3}));
  EXPECT_EQ(unique(tensor({kNan, 1, kNan}, {3})).counts.numel(), 3);
  EXPECT_EQ(values(bincount(ids({1, 3, 1}, {3}))), (Doubles{0, 2, 0, 1}));
  EXPECT_EQ(bincount(ids({1}, {1}), {}, 5).shape(), Shape{5});
  EXPECT_EQ(bincount(ids({1}, {1})).dtype(), DType::i64);
  EXPECT_EQ(values(bincount(ids({1, 0, 1}, {3}), tensor({0.5, 2, 1}, {3}))), (Doubles{2, 1.5}));
  EXPECT_EQ(values(repeat_interleave(ids({5, 6, 7}, {3}), ids({2, 0, 1}, {3}), 0)), (Doubles{5, 5, 7}));
  EXPECT_ERROR(masked_select(x, x), "masked_select: the mask is [2, 3] f32");
  EXPECT_ERROR(bincount(ids({-1}, {1})), "bincount: found -1, expected no negative number");
  EXPECT_ERROR(bincount(x), "bincount: the input is [2, 3] f32");
  EXPECT_ERROR(repeat_interleave(x, ids({1}, {1}), 0), "expected i64 [2], one for each element of axis 0");
}

TEST_F(BasisTest, OtherOrders) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(flip(x, {0, 1})), (Doubles{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(flip(x, -1)), (Doubles{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(values(roll(x, 1)), (Doubles{5, 0, 1, 2, 3, 4}));
  EXPECT_EQ(values(roll(x, -4, 1)), (Doubles{1, 2, 0, 4, 5, 3}));
  EXPECT_EQ(values(repeat(counting({2}), {2, 2})), (Doubles{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(repeat(x, {4, 1, 0}).shape(), (Shape{4, 2, 0}));
  EXPECT_EQ(values(repeat_interleave(x, 2)), (Doubles{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(values(repeat_interleave(ids({4, 5}, {2}), 2, 0)), (Doubles{4, 4, 5, 5}));
  EXPECT_EQ(movedim(counting({2, 3, 4}), {0, 1}, {-1, 0}).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(values(linspace(-1, 1, 5, {.device = device_})), (Doubles{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(values(linspace(0, 10, 4, {.dtype = DType::i64, .device = device_})), (Doubles{0, 3, 6, 10}));
  EXPECT_EQ(linspace(0.1, 0.7, 7, {.dtype = DType::f64}).to_vector<double>().back(), 0.7);
  EXPECT_EQ(values(linspace(3, 5, 1, {.device = device_})), Doubles{3});
  const auto grid = meshgrid({counting({2}), counting({3})}, GridIndexing::xy);
  EXPECT_EQ(values(grid[0]), (Doubles{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(grid[1].shape(), (Shape{3, 2}));
  EXPECT_ERROR(repeat(x, {2}), "repeat: 1 numbers for [2, 3], expected one for each axis");
  EXPECT_ERROR(flip(x, {0, -2}), "flip: axis -2 is named twice");
  EXPECT_ERROR(roll(x, {1}, {0, 1}), "roll: 1 shifts and 2 axes");
  EXPECT_ERROR(meshgrid({x}), "meshgrid: a tensor is [2, 3], expected at most one axis");
}

TEST_F(BasisTest, EinsumReadsItsEquation) {
  const Tensor x = counting({2, 3}), y = counting({3, 2});
  EXPECT_EQ(values(einsum("ij,jk", {x, y})), (Doubles{10, 13, 28, 40}));
  EXPECT_EQ(values(einsum("ba", {x})), (Doubles{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(einsum("ij->", {x})), Doubles{15});
  EXPECT_EQ(values(einsum("ii->i", {counting({3, 3})})), (Doubles{0, 4, 8}));
  EXPECT_EQ(values(einsum("ii", {counting({3, 3})})), Doubles{12});
  EXPECT_EQ(einsum("...ab,...bc->...ac", {counting({4, 2, 3}), y}).shape(), (Shape{4, 2, 2}));
  EXPECT_EQ(values(einsum("ij,ij->i", {x, counting({2, 1})})), (Doubles{0, 12}));
  EXPECT_ERROR(einsum("ij,jk", {x}), "einsum: \"ij,jk\" has 2 operands, found 1");
  EXPECT_ERROR(einsum("ijk", {x}), "einsum: \"ijk\" has 3 letters for operand 0, [2, 3]");
  EXPECT_ERROR(einsum("ij,ij", {x, y}), "einsum: \"ij,ij\" has one axis of 2 and 3 elements");
  EXPECT_ERROR(einsum("ij->k", {x}), "has a letter in the result that no operand has");
  EXPECT_ERROR(einsum("i1", {x}), "has '1', expected letters");
  EXPECT_ERROR(einsum("ii", {x}), "takes a diagonal of [2, 3], expected equal extents");
}

// Of several at one place the last one stays, and it alone gets a gradient.
TEST_F(BasisTest, ScatterOverwrites) {
  Tensor x = as_leaf(counting({2, 3})), src = as_leaf(tensor({10, 20, 30, 40, 50, 60}, {2, 3}));
  const Tensor y = scatter(x, 1, ids({2, 2, 0, 1, 1, 1}, {2, 3}), src);
  EXPECT_EQ(values(y), (Doubles{30, 1, 20, 3, 60, 5}));
  sum(y * tensor({1, 2, 3, 4, 5, 6}, {2, 3})).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 2, 0, 4, 0, 6}));
  EXPECT_EQ(values(src.grad()), (Doubles{0, 3, 1, 0, 0, 5}));
  EXPECT_EQ(values(scatter(x, 0, ids({1}, {1, 1}), src)), (Doubles{0, 1, 2, 10, 4, 5}));
  EXPECT_EQ(values(scatter(ids({1, 2, 3}, {3}), 0, ids({1}, {1}), 9)), (Doubles{1, 9, 3}));
  EXPECT_EQ(values(gather(x, 1, ids({2, 0, 1, 1}, {1, 4}))), (Doubles{2, 0, 1, 1}));
  EXPECT_ERROR(gather(x, 1, ids({0, 0, 0}, {3, 1})),
               "gather: the index is [3, 1], expected, except on axis 1, at most [2, 3]");
  EXPECT_ERROR(values(scatter(x, 1, ids({3}, {1, 1}), src)), "index: 3 at place 0 is outside [0, 3)");
  EXPECT_ERROR(index_add(x, 0, ids({0}, {1}), src), "index_add: the source is [2, 3], expected [1, 3]");
}

TEST_F(BasisTest, MedianOfNan) {
  const auto [middle, at] = median(tensor({3, kNan, 1, 4, 2, 9}, {2, 3}), 1);
  EXPECT_NE(values(middle)[0], values(middle)[0]);
  EXPECT_EQ(values(at), (Doubles{1, 0}));
  EXPECT_EQ(values(median(tensor({4, 1, 3, 2}, {4}))), Doubles{2});
  EXPECT_EQ(median(tensor({4, 1}, {2, 1}), 0, true).values.shape(), (Shape{1, 1}));
}

// The variance of a half type may be too large for it, or too small.
TEST_F(BasisTest, StandardDeviationOfHalves) {
  EXPECT_NEAR(values(std(tensor({0, 1000}, {2}, DType::f16), 0))[0], 707.1, 0.5);
  EXPECT_NEAR(values(std(tensor({0, 1e-3}, {2}, DType::f16), 0))[0], 7.07e-4, 1e-6);
}

TEST_F(BasisTest, StdOfEqualElementsHasNoGradient) {
  Tensor x = as_leaf(tensor({3, 3, 3, 0, 1, 2}, {2, 3}));
  const Tensor y = lockstep::std(x, 1);
  EXPECT_EQ(values(y), (Doubles{0, 1}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0, -0.5, 0, 0.5}));
}

// As in PyTorch, without eps it is that of the type.
TEST_F(BasisTest, RmsNormHasTheEpsOfItsType) {
  const double tiny = 0x1p-20;
  const Tensor wide = tensor({tiny, tiny}, {2}, DType::f64);
  EXPECT_NEAR(values(rms_norm(wide, {2}))[0], tiny / std::sqrt(tiny * tiny + 0x1p-52), 1e-12);
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor narrow = tensor({tiny, tiny}, {2}, dtype);
    EXPECT_NEAR(values(rms_norm(narrow, {2}))[0], tiny / std::sqrt(tiny * tiny + 0x1p-23), 1e-5);
  }
  EXPECT_NEAR(values(rms_norm(wide, {2}, {}, 0x1p-40))[0], std::sqrt(0.5), 1e-12);
}

TEST_F(BasisTest, GeluByTanh) {
  const GeluOptions options{.approximate = GeluApproximation::tanh};
  const Doubles at{-30, -1, 0, 0.5, 4}, expected{0, -0.15880800939, 0, 0.34571400982, 3.99992975399};
  EXPECT_LT(distance(values(gelu(tensor(at, {5}, DType::f64), options)), expected), 1e-10);
  EXPECT_LT(distance(values(gelu(tensor(at, {5}, DType::f16), options)), expected), 1e-3);
}

// Products inside, and those of their gradients, are beyond f16.
TEST_F(BasisTest, ActivationsOfLargeHalves) {
  const auto check = [&](const char* name, const std::function<Tensor(const Tensor&)>& f, const Doubles& at,
                         const Doubles& expected, const Doubles& slopes) {
    Tensor x = as_leaf(tensor(at, {static_cast<std::int64_t>(at.size())}, DType::f16));
    const Tensor y = f(x);
    EXPECT_EQ(y.dtype(), DType::f16) << name;
    EXPECT_EQ(values(y), expected) << name;
    backward({y}, {full_like(y, 4)});
    EXPECT_EQ(values(x.grad()), slopes) << name;
  };
  check("mish", mish, {60000, -60000}, {60000, 0}, {4, 0});
  check("glu", [](const Tensor& x) { return glu(x); }, {60000, 30}, {60000}, {4, 0});
  check("hardswish", hardswish, {60000, -60000}, {60000, 0}, {4, 0});
  check("hardsigmoid", hardsigmoid, {60000, -60000}, {1, 0}, {0, 0});
  check("silu", silu, {60000, -60000}, {60000, 0}, {4, 0});
  check("softplus", [](const Tensor& x) { return softplus(x); }, {60000, -60000}, {60000, 0}, {4, 0});
  check("logsigmoid", logsigmoid, {60000, -60000}, {0, -60000}, {0, 4});
  check("softsign", softsign, {60000, -60000}, {1, -1}, {0, 0});
  check("tanhshrink", tanhshrink, {60000, -60000}, {60000, -60000}, {4, 4});
  check("elu", [](const Tensor& x) { return elu(x); }, {60000, -60000}, {60000, -1}, {4, 0});
  check("celu", [](const Tensor& x) { return celu(x, 0x1p-24); }, {60000, -0x1p-10}, {60000, -0x1p-24}, {4, 0});
  check("gelu", [](const Tensor& x) { return gelu(x); }, {60000, -60000}, {60000, 0}, {4, 0});
}

TEST_F(BasisTest, PaddingHasNoGradient) {
  Tensor w = as_leaf(counting({3, 2}));
  sum(embedding(ids({1, 2, 2, 0}, {4}), w, -1)).backward();
  EXPECT_EQ(values(w.grad()), (Doubles{1, 1, 1, 1, 0, 0}));
}

TEST_F(BasisTest, ProductsOfBatches) {
  const Tensor a = counting({2, 2, 3}), b = counting({2, 3, 1});
  EXPECT_EQ(values(bmm(a, b)), (Doubles{5, 14, 86, 122}));
  EXPECT_EQ(matmul(counting({4, 1, 2, 3}), counting({5, 3, 6})).shape(), (Shape{4, 5, 2, 6}));
  EXPECT_EQ(matmul(counting({3}), counting({3})).shape(), Shape());
  EXPECT_EQ(matmul(counting({3}), counting({3})).item<float>(), 5);
  EXPECT_EQ(matmul(counting({2, 3}), counting({3})).shape(), (Shape{2}));
  EXPECT_EQ(matmul(counting({3}), counting({5, 3, 2})).shape(), (Shape{5, 2}));
  EXPECT_EQ(linear(counting({2, 2, 3}), counting({4, 3})).shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(linear(counting({3}), counting({4, 3})).shape(), (Shape{4}));
  EXPECT_ERROR(linear(a, counting({3})), "linear: weight is [3], expected 2 axes (out, in)");
  EXPECT_ERROR(linear(a, counting({1, 4, 3})), "linear: weight is [1, 4, 3], expected 2 axes (out, in)");
  EXPECT_ERROR(bmm(a, counting({3, 3, 1})), "bmm: 2 and 3 matrices ([2, 2, 3] x [3, 3, 1])");
  EXPECT_ERROR(bmm(a, counting({3, 1})), "bmm: an operand is [3, 1], expected 3 axes");
  EXPECT_ERROR(matmul(a, counting({3, 3, 1})), "matmul: shapes [2] and [3] do not broadcast");
  EXPECT_ERROR(matmul(a, counting({2, 2, 3})), "matmul: a has 3 columns, b has 2 rows");
}

}  // namespace
}  // namespace lockstep::testing
