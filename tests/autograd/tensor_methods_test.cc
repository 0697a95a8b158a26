// Methods, operators of comparisons, and tensor().
#include <gtest/gtest.h>

#include <concepts>

#include "lockstep/autograd/functions.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

template <typename T>
concept ComparesToATruthValue = requires(const T& a) {
  static_cast<bool>(a == a);
};
// A mask is no truth value: code that compares tensors as handles does not compile.
static_assert(!ComparesToATruthValue<Tensor> && !std::equality_comparable<Tensor>);
static_assert(std::same_as<decltype(Tensor() == Tensor()), Tensor>);

class TensorMethods : public ::testing::Test {
 protected:
  Tensor make(const Numbers& v, const Shape& shape) const { return make_tensor(v, shape, device_); }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(TensorMethods, MethodsAreTheFunctions) {
  const Tensor x = make({0.5, -1, 2, 0.25, 3, -2}, {2, 3}), positive = x.abs();
  EXPECT_EQ(values(positive), values(abs(x)));
  EXPECT_EQ(values(x.sum()), values(sum(x)));
  EXPECT_EQ(values(x.mean(1)), values(mean(x, 1)));
  EXPECT_EQ(values(x.std(1, {.correction = 0})), values(lockstep::std(x, 1, {.correction = 0})));
  EXPECT_EQ(values(x.max(1).indices), values(max(x, 1).indices));
  EXPECT_EQ(values(x.topk(2).values), values(topk(x, 2).values));
  EXPECT_EQ(values(x.matmul(x.t())), values(matmul(x, transpose(x))));
  EXPECT_EQ(values(x.transpose(0, 1).flatten()), values(flatten(transpose(x))));
  EXPECT_EQ(values(x.softmax(1)), values(softmax(x, 1)));
  EXPECT_EQ(values(x.clamp(0, 1).pow(2)), values(pow(clamp(x, 0, 1), 2)));
  EXPECT_EQ(values(x.where(x > 0, 9)), values(where(gt(x, 0), x, 9)));
  EXPECT_EQ(values(x.masked_fill(x < 0, 0)), values(relu(x)));
  EXPECT_EQ(x.view({3, -1}).unsqueeze(0).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(values(x.flip(1)), values(flip(x, 1)));
  EXPECT_EQ(values(x.roll(1, 1)), values(roll(x, 1, 1)));
  EXPECT_EQ(values(x.repeat({2, 1})), values(repeat(x, {2, 1})));
  EXPECT_EQ(values(x.floor()), values(floor(x)));
  EXPECT_EQ(values(x.gather(1, x.argsort(1))), values(gather(x, 1, argsort(x, 1))));
  EXPECT_EQ(values(x.masked_select(x > 0)), values(x[x > 0]));
  EXPECT_EQ(x.dim(), 2);
  EXPECT_EQ(x.split(2, 1)[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(values(make({1}, {1}).t()), std::vector<double>{1});
  EXPECT_ERROR(make({1}, {1, 1, 1}).t(), "expected at most two axes: use transpose(dim0, dim1)");
}

TEST_F(TensorMethods, MethodsHaveTheGradient) {
  Tensor x = as_leaf(make({1, 2, 3, 4}, {2, 2}));
  x.square().sum(0).log().sum().cpu().backward();
  EXPECT_EQ(x.grad().shape(), (Shape{2, 2}));
  EXPECT_NEAR(values(x.grad())[1], 2.0 * 2 / 20, 1e-6);
}

TEST_F(TensorMethods, ComparisonsAreOperators) {
  const Tensor x = make({1, 2, 3}, {3}), y = make({3, 2, 1}, {3});
  EXPECT_EQ(values(x == y), (Numbers{0, 1, 0}));
  EXPECT_EQ(values(x != y), (Numbers{1, 0, 1}));
  EXPECT_EQ(values(x < y), (Numbers{1, 0, 0}));
  EXPECT_EQ(values(x <= y), (Numbers{1, 1, 0}));
  EXPECT_EQ(values(x > 1), (Numbers{0, 1, 1}));
  EXPECT_EQ(values(2 >= x), (Numbers{1, 1, 0}));
  EXPECT_EQ(values(2 == x), (Numbers{0, 1, 0}));
  EXPECT_EQ(values((x > 1) & (x < 3)), (Numbers{0, 1, 0}));
  EXPECT_EQ(values((x < 2) | (x > 2)), (Numbers{1, 0, 1}));
  EXPECT_EQ(values((x < 3) ^ (x > 1)), (Numbers{1, 0, 1}));
  EXPECT_EQ(values(~(x > 2)), (Numbers{1, 1, 0}));
  EXPECT_EQ(values(!(x > 2)), (Numbers{1, 1, 0}));
  EXPECT_ERROR(x & y, "bit_and: inputs are f32, expected bool or whole numbers");
  EXPECT_TRUE((x == x).all().item<bool>());
}

TEST_F(TensorMethods, TensorsFromValues) {
  const Tensor x = lockstep::tensor({1.0, 2.5});
  EXPECT_EQ(x.str(), "tensor([1, 2.5], f32, host)");
  EXPECT_EQ(lockstep::tensor(5).str(), "tensor(5, i64, host)");
  EXPECT_EQ(lockstep::tensor(5).shape(), Shape());
  EXPECT_EQ(lockstep::tensor({{1, 2}, {3, 4}}).str(), "tensor([[1, 2],\n        [3, 4]], i64, host)");
  EXPECT_EQ(lockstep::tensor({{{1}, {2}}}).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(lockstep::tensor({1, 2.5}).dtype(), DType::f32);
  EXPECT_EQ(lockstep::tensor({true, false}).dtype(), DType::boolean);
  EXPECT_EQ(lockstep::tensor(std::vector<int>{1, 2}).dtype(), DType::i64);
  EXPECT_EQ(lockstep::tensor(std::vector<double>{1, 2}).dtype(), DType::f32);
  EXPECT_EQ(lockstep::tensor(std::vector<bool>{true}).dtype(), DType::boolean);
  EXPECT_EQ(lockstep::tensor(std::int64_t{1} << 60).item<std::int64_t>(), std::int64_t{1} << 60);
  EXPECT_EQ(lockstep::tensor({1, 2}, {.dtype = DType::f64, .device = device_}).describe(),
            fmt::format("[2] f64 on {}", device_.name()));
  EXPECT_EQ(Tensor::from({1.F, 2.F}, {2}).shape(), Shape{2});
  EXPECT_ERROR(lockstep::tensor({{1, 2}, {3}}), "tensor: lists of shapes [2] and [1] beside each other");
}

TEST_F(TensorMethods, HostMemoryHasAnAddress) {
  Tensor x = Tensor::host({2});
  x.data_ptr<float>()[1] = 3;
  EXPECT_EQ(x.data_ptr<const float>()[1], 3);
  EXPECT_ERROR(x.data_ptr<double>(), "data_ptr: the elements are f32, requested as f64");
  EXPECT_ERROR(make({1}, {1}).data_ptr<float>(), "expected host memory: to_host()");
}

}  // namespace
}  // namespace lockstep::testing
