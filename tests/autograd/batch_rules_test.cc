// Edge cases of batches: one sample, shards without influence on the loss, 16-bit types, and uncut tensors combined
// with cut ones.
#include <gtest/gtest.h>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/batch_norm.h"
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

class BatchRulesTest : public ::testing::Test {
 protected:
  // 1, 2, 3, ...
  Tensor numbers(const Shape& shape, DType dtype = DType::f32) {
    std::vector<double> all(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i + 1);
    return make_tensor(all, shape, devices_[0], dtype);
  }
  Tensor labels(std::int64_t n) {
    return Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(n)), {n}).to(devices_[0]);
  }
  // Into shards of these sizes, by turns on the two devices.
  Tensor cut(const Tensor& x, const std::vector<std::int64_t>& rows) {
    std::vector<Slot> slots;
    for (std::size_t s = 0; s < rows.size(); ++s) slots.push_back({static_cast<int>(s), devices_[s % 2]});
    return scatter(x, std::make_shared<Placement>(rows, slots));
  }
  Tensor replicated(const Tensor& x) { return replicated_tensor({x->array(), x.to(devices_[1])->array()}); }

  Runtime runtime_{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1}};
  const std::vector<Device>& devices_ = runtime_.devices();
};

using Numbers = std::vector<double>;

TEST_F(BatchRulesTest, ARootGivenTwiceCountsTwice) {
  Tensor w = as_leaf(make_tensor({3}, {1}, devices_[0]));
  const Tensor loss = square(w);
  backward(std::array{loss, loss}, std::array{Tensor(), Tensor()});
  EXPECT_EQ(values(w.grad()), Numbers{12});
}

// As the gradient of a layer's weights is.
TEST_F(BatchRulesTest, AProductOfMatricesSumsOverTheSamples) {
  Tensor x = as_leaf(cut(numbers({5, 3}), {2, 3})), y = as_leaf(cut(numbers({5, 2}), {2, 3}));
  Tensor whole_x = as_leaf(numbers({5, 3})), whole_y = as_leaf(numbers({5, 2}));
  const Tensor product = matmul(transpose(y), x), expected = matmul(transpose(whole_y), whole_x);
  EXPECT_EQ(product->kind, Kind::replicated);
  EXPECT_EQ(values(product), values(expected));
  sum(square(product)).backward();
  sum(square(expected)).backward();
  EXPECT_EQ(values(x.grad()), values(whole_x.grad()));
  EXPECT_EQ(values(y.grad()), values(whole_y.grad()));
}

TEST_F(BatchRulesTest, AWrongGradientOfARootSaysWhatIsExpected) {
  const Tensor loss = sum(as_leaf(cut(numbers({4, 1}), {2, 2})));
  EXPECT_ERROR(backward(std::array{loss}, std::array{numbers({1})}), "expected one of the same kind, shape and type");
}

TEST_F(BatchRulesTest, ShardsWithoutInfluenceHaveAGradientOfZeros) {
  const auto of_second_shard = [](const Tensor& x) {
    bool first = true;
    return sum(per_shard([&](const Tensor& t) { return (std::exchange(first, false) ? t.detach() : t) * 2; }, x));
  };
  Tensor x = as_leaf(cut(numbers({4, 1}), {2, 2})), whole = as_leaf(numbers({4, 1}));
  of_second_shard(x).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{0, 0, 2, 2}));
  of_second_shard(cut(whole, {2, 2})).backward();
  EXPECT_EQ(values(whole.grad()), (Numbers{0, 0, 2, 2}));
}

// One shard is no exception: with two, each would meet all labels.
TEST_F(BatchRulesTest, WholeTensorsBesideSamplesAreRefusedForOneShard) {
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{4}, {2, 2}}) {
    const Tensor x = cut(numbers({4, 2}), rows), images = cut(numbers({4, 1, 1, 2}), rows), one = numbers({1});
    EXPECT_ERROR(cross_entropy(x, labels(4)), "[4] i64 on cpu:0 is not cut over the batch, but another input is");
    EXPECT_ERROR(mse_loss(x, numbers({4, 2})), "is cut over the batch, the other is not: split_and_load() both");
    EXPECT_ERROR(mse_loss(x, numbers({1, 2})), "[1, 2] f32 on cpu:0, expected the same shape");
    const std::string residual = "batch_norm: [4, 1, 1, 2] f32 on cpu:0 is not cut over the batch";
    EXPECT_ERROR(batch_norm_train(images, one, one, numbers({4, 1, 1, 2}), {}, nullptr), residual);
    EXPECT_ERROR(batch_norm_eval(images, one, one, one, one, numbers({4, 1, 1, 2}), {}), residual);
    EXPECT_ERROR(batch_norm_synchronized(images, one, one, numbers({4, 1, 1, 2}), {}, nullptr), residual);
  }
}

// An index of one sample would count for the first one alone, in PyTorch.
TEST_F(BatchRulesTest, ScatterAddHasAnIndexForEachSample) {
  const Tensor whole = Tensor::from(std::vector<std::int64_t>{1, 0, 0, 1}, {2, 2}).to(devices_[0]);
  const Tensor x = cut(numbers({2, 2}), {1, 1}), index = cut(whole, {1, 1});
  EXPECT_EQ(values(scatter_add(x, 1, index, x)), (Numbers{3, 3, 6, 8}));
  EXPECT_ERROR(scatter_add(x, 1, narrow(whole, 0, 0, 1), x),
               "scatter_add: [1, 2] i64 on cpu:0 is not cut over the batch, but another input is");
}

TEST_F(BatchRulesTest, TheSumOverFeaturesIsCutForOneSample) {
  for (std::int64_t n : {1, 2}) {
    const Tensor x = cut(numbers({n, 3}), {n}), y = sum_to(x, {n, 1});
    ASSERT_EQ(y->kind, Kind::cut) << n;
    EXPECT_EQ(values(y)[0], 6);
    EXPECT_EQ(cross_entropy(x / y, cut(labels(n), {n})).shape(), (Shape{1}));
    EXPECT_EQ(gather(y.reshape({n})).shape(), (Shape{n}));
  }
}

TEST_F(BatchRulesTest, OneSampleStaysOnItsAxis) {
  for (std::int64_t n : {1, 2}) {
    const Tensor y = transpose(cut(numbers({n, 3}), {n})).reshape({3, n, 1});
    EXPECT_EQ(y->cut.axis, 1) << n;
    EXPECT_EQ(values(y + numbers({3, 1, 1}))[0], 2);
  }
}

TEST_F(BatchRulesTest, HalfTypesAreSummedOverShardsAsInOnePiece) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const auto found = [&](const std::function<Tensor(const Tensor&)>& place) {
      Tensor x = as_leaf(place(numbers({4, 2}, dtype)).detach()), w = as_leaf(numbers({1, 2}, dtype));
      const Tensor column_sums = sum_to(x, {1, 2});
      cross_entropy(x * column_sums * w, place(labels(4))).backward();
      EXPECT_EQ(x.grad().dtype(), dtype);
      EXPECT_EQ(w.grad().dtype(), dtype);
      return std::vector{values(sum(x)), values(column_sums), values(x.grad()), values(w.grad())};
    };
    const auto expected = found([](const Tensor& t) { return t; });
    for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{4}, {2, 2}, {3, 1}}) {
      const auto sums = found([&](const Tensor& t) { return cut(t, rows); });
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(distance(sums[i], expected[i]), 0.02) << name(dtype) << i;
    }
  }
}

// 100000 ones: their sum is out of f16's range.
TEST_F(BatchRulesTest, AMeanOfHalfTypesKeepsItsRange) {
  const Tensor ones = full_like(numbers({100, 1000}), 1).to(DType::f16);
  for (const Tensor& placed : {ones, cut(ones, {100}), cut(ones, {50, 50})}) {
    Tensor x = as_leaf(placed.detach());
    const Tensor m = mean(x);
    EXPECT_EQ(m.dtype(), DType::f16);
    EXPECT_EQ(values(m), Numbers{1});
    m.backward();
    EXPECT_NEAR(values(x.grad())[0], 1e-5, 1e-7);
  }
}

TEST_F(BatchRulesTest, AReplicatedLeafHasItsGradientOnAllDevices) {
  Tensor w = as_leaf(replicated(numbers({1, 3})));
  sum(cut(numbers({2, 3}), {1, 1}) * w).backward();
  const Tensor gradient = w.grad();
  ASSERT_EQ(gradient->parts.size(), 2U);
  for (const Array& part : gradient->parts) EXPECT_EQ(values(part), (Numbers{5, 7, 9}));
}

// Its gradient has a part for every shard.
TEST_F(BatchRulesTest, AFunctionSeesZerosForShardsWithoutInfluence) {
  struct Twice : Function {
    Tensor forward(const Tensor& x) { return x * 2; }
    Tensor backward(const Tensor& dy) { return dy * 2; }
  };
  Tensor x = as_leaf(cut(numbers({4, 1}), {2, 2}));
  bool first = true;
  sum(per_shard([&](const Tensor& t) { return std::exchange(first, false) ? t.detach() : t; }, apply<Twice>(x)))
      .backward();
  EXPECT_EQ(values(x.grad()), (Numbers{0, 0, 2, 2}));
}

// With logical tensors, whatever the number of shards.
TEST_F(BatchRulesTest, AFunctionIsCalledOnce) {
  static int forwards, backwards;
  struct Cubed : Function {
    SavedTensor x;
    std::tuple<Tensor, Tensor> forward(const Tensor& a, const Tensor& w) {
      ++forwards;
      EXPECT_EQ(a.shape(), (Shape{7, 1}));
      EXPECT_EQ(w.shape(), (Shape{1}));
      x = a;
      return {a * a * a, a + w};
    }
    std::tuple<Tensor, Tensor> backward(const Tensor& da, const Tensor& dsum) {
      ++backwards;
      EXPECT_EQ(da.shape(), (Shape{7, 1}));
      EXPECT_EQ(dsum.shape(), (Shape{7, 1}));
      return {x.get() * x.get() * da * 3 + dsum, sum_to(dsum, {1})};
    }
  };
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{2, 2, 2, 1}, {7}}) {
    forwards = backwards = 0;
    Tensor x = as_leaf(cut(numbers({7, 1}), rows)), w = as_leaf(replicated(numbers({1})));
    const auto [cubes, sums] = apply<Cubed>(x, w);
    EXPECT_EQ(values(cubes), (Numbers{1, 8, 27, 64, 125, 216, 343}));
    EXPECT_EQ(cubes->parts.size(), rows.size());
    sum(cubes + sums * 2).backward();
    EXPECT_EQ(values(x.grad()), (Numbers{5, 14, 29, 50, 77, 110, 149}));
    EXPECT_EQ(values(w.grad()), Numbers{14});
    EXPECT_EQ(forwards, 1);
    EXPECT_EQ(backwards, 1);
  }
}

// x + w for a parameter [1, C], which a single sample resembles.
struct PlusRow : Function {
  bool sums = true;
  Shape shape;
  Tensor forward(const Tensor& x, const Tensor& row, bool right) {
    sums = right;
    shape = row.shape();
    return x + row;
  }
  std::pair<Tensor, Tensor> backward(const Tensor& dy) { return {dy, sums ? sum_to(dy, shape) : dy}; }
};

TEST_F(BatchRulesTest, ARowMayHaveOneSampleOrSeveral) {
  // Shards of a single sample, beside shards without one, and of several.
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{1}, {1, 0}, {2, 1}}) {
    const std::int64_t n = rows[0] + (rows.size() > 1 ? rows[1] : 0);
    Tensor x = as_leaf(cut(numbers({n, 2}), rows)), w = as_leaf(replicated(numbers({1, 2})));
    sum(apply<PlusRow>(x, w, true) * 3).backward();
    EXPECT_EQ(values(w.grad()), Numbers(2, 3.0 * static_cast<double>(n)));
    EXPECT_EQ(w.grad()->kind, Kind::replicated);
    EXPECT_EQ(values(x.grad()), Numbers(static_cast<std::size_t>(2 * n), 3.0));
  }
}

TEST_F(BatchRulesTest, AWrongGradientNamesItsKind) {
  const Tensor x = as_leaf(cut(numbers({4, 2}), {2, 2}));
  // It is not summed over the shards.
  const Tensor in[] = {x, as_leaf(replicated(numbers({1, 2})))};
  EXPECT_ERROR(sum(apply<PlusRow>(in[0], in[1], false)).backward(),
               "PlusRow: the gradient of input 1 is [4, 2] f32 on " + describe_devices(x.devices()) +
                   ", cut over the batch on axis 0, expected [1, 2] f32 on " + describe_devices(in[1].devices()) +
                   ", replicated");
}

}  // namespace
}  // namespace lockstep::testing
