// The graph: what is recorded, how backward() walks it, and its errors.
#include <gtest/gtest.h>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/error.h"
#include "tests/autograd/gradient_testing.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

class GraphTest : public ::testing::Test {
 protected:
  Tensor constant(const std::vector<double>& v, int device = 0) {
    return make_tensor(v, {static_cast<std::int64_t>(v.size())}, runtime_.devices()[static_cast<std::size_t>(device)]);
  }
  Tensor leaf(const std::vector<double>& v, int device = 0) { return constant(v, device).set_requires_grad(true); }

  Runtime runtime_{{.cpu_devices = 3, .cores_per_device = 1, .threads_per_shard = 1}};
};

using Numbers = std::vector<double>;

TEST_F(GraphTest, ResidualSumsAddBothBranches) {
  Tensor x = leaf({1, -2, 3});
  sum(x + square(x)).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{3, -3, 7}));
}

TEST_F(GraphTest, ATensorMayBeBothOperands) {
  Tensor x = leaf({1, -2, 3});
  sum(x * x * x).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{3, 12, 27}));
}

// The gradient of a sum is the same tensor for both terms: adding to one of them must not change the other.
TEST_F(GraphTest, GradientsThatShareATensorStayApart) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4}), z = a + b;
  sum(z + a * 2 + a * 3).backward();
  EXPECT_EQ(values(a.grad()), (Numbers{6, 6}));
  EXPECT_EQ(values(b.grad()), (Numbers{1, 1}));
}

TEST_F(GraphTest, AGradientThatIsChangedInPlaceChangesNoOther) {
  Tensor x = leaf({1, 2}), y = leaf({3, 4});
  sum((x + y) * 3).backward();
  const NoGradGuard no_grad;
  const Tensor shown = x.grad();
  shown.copy_from(constant({0, 0}));
  EXPECT_EQ(values(x.grad()), (Numbers{0, 0}));
  EXPECT_EQ(values(y.grad()), (Numbers{3, 3}));
}

TEST_F(GraphTest, ASumOfOneElementIsATensorOfItsOwn) {
  const Tensor x = constant({5}), row = constant({1, 2});
  const Tensor all = sum(x), largest = max(x), axis = sum(unsqueeze(row, 0), {0});
  x.copy_from(constant({0}));
  row.copy_from(constant({0, 0}));
  EXPECT_EQ(all.item(), 5);
  EXPECT_EQ(largest.item(), 5);
  EXPECT_EQ(values(axis), (Numbers{1, 2}));
}

TEST_F(GraphTest, CompoundAssignmentLeavesOtherHandlesAsTheyWere) {
  const Tensor x = leaf({1, 2}), other = x * 1;
  Tensor y = other;
  y += x;
  y *= 3;
  EXPECT_EQ(values(other), (Numbers{1, 2}));
  EXPECT_EQ(values(y), (Numbers{6, 12}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{6, 6}));
  Tensor a = constant({1, 2});
  const Tensor b = a;
  a -= 1;
  EXPECT_EQ(values(b), (Numbers{1, 2}));
}

// An update by hand. A new tensor in this handle would leave the leaf, and all that computes with it, as it was.
TEST_F(GraphTest, CompoundAssignmentToALeafWritesInPlace) {
  Tensor x = leaf({1, 2});
  const Tensor other = x;
  sum(x * x).backward();
  EXPECT_ERROR(x -= 0.5 * x.grad(), "is a leaf that requires a gradient, which a write in place would not record");
  {
    const NoGradGuard no_grad;
    x -= 0.25 * x.grad();
    EXPECT_EQ(values(other), (Numbers{0.5, 1}));
    x += 1;
    x *= 2;
    x /= 4;
  }
  EXPECT_EQ(values(other), (Numbers{0.75, 1}));
  x.zero_grad();
  sum(x * x).backward();
  EXPECT_EQ(values(other.grad()), (Numbers{1.5, 2})) << "still the leaf";
}

TEST_F(GraphTest, LeavesSumOverCallsUntilCleared) {
  Tensor x = leaf({5});
  for (int i = 0; i < 3; ++i) sum(x * 2).backward();
  EXPECT_EQ(values(x.grad()), Numbers{6});
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  sum(x * 2).backward();
  EXPECT_EQ(values(x.grad()), Numbers{2});
}

TEST_F(GraphTest, LongChainsNeedNoDeepRecursion) {
  constexpr int kLength = 50'000;
  Runtime serial({.serial = true});
  Tensor x = as_leaf(make_tensor({1}, {1}, serial.devices()[0]));
  for (bool backward : {true, false}) {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = y + 1;
    EXPECT_EQ(y.item<float>(), kLength + 1);
    if (backward) y.backward();
  }
  EXPECT_EQ(x.grad().item<float>(), 1);
}

TEST_F(GraphTest, ItemReadsADoubleUnlessToldOtherwise) {
  const Tensor loss = mean(square(leaf({3}))), count = Tensor::from(std::vector<std::int64_t>{7}, {1});
  EXPECT_EQ(loss.item(), 9.0F);
  EXPECT_EQ(ops::host_readable(loss->array()).item(), 9.0F);
  EXPECT_TRUE((std::is_same_v<decltype(loss.item()), double>));
  EXPECT_EQ(count.item<std::int64_t>(), 7);
  EXPECT_EQ(count.item(), 7);
  EXPECT_EQ(count.item<float>(), 7.0F);
  EXPECT_EQ(constant({-2.5F}).item<std::int64_t>(), -2);
  EXPECT_ERROR(constant({300}).item<std::uint8_t>(), "item: 300 does not fit into u8");
  EXPECT_ERROR(constant({1, 2}).item(), "item: 2 elements, expected 1");
}

TEST_F(GraphTest, WhatNobodyNeedsIsNotRecorded) {
  Tensor x = leaf({1}), c = constant({1});
  EXPECT_TRUE((x * c).requires_grad());
  EXPECT_FALSE((c * c).requires_grad());
  EXPECT_FALSE((x.detach() * c).requires_grad());
  {
    NoGradGuard outer;
    { NoGradGuard inner; }
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * c).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
}

TEST_F(GraphTest, UnusedInputsGetNoGradient) {
  Tensor x = leaf({1, 2}), unused = leaf({3, 4});
  Tensor other = unused * 2;
  sum(x * 2).backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(GraphTest, SavedTensorsGoAsSoonAsTheirNodeHasRun) {
  Tensor x = leaf({1, 2});
  std::weak_ptr<Storage> saved;
  Tensor loss;
  {
    Tensor y = exp(x);
    saved = y->storage();
    loss = sum(y);
  }
  EXPECT_FALSE(saved.expired());
  loss.backward();
  EXPECT_TRUE(saved.expired());
}

TEST_F(GraphTest, ASecondBackwardIsAnError) {
  Tensor x = leaf({1, 2});
  Tensor y = exp(x), loss = sum(y);
  loss.backward();
  EXPECT_ERROR(loss.backward(), "was used by an earlier backward()");
  EXPECT_ERROR(sum(y * 2).backward(), "backward: the history of exp was used by an earlier backward()");
}

TEST_F(GraphTest, WrongRootsAreErrors) {
  Tensor x = leaf({1, 2}), y = constant({1});
  EXPECT_ERROR((x * 2).backward(), "backward: " + x.describe() + " is not a scalar");
  EXPECT_ERROR(y.backward(), "no input of " + y.describe() + " requires a gradient");
  EXPECT_ERROR((x * 2).set_requires_grad(true), "requires_grad: " + x.describe() + " is not a leaf");
  EXPECT_ERROR(Tensor::host({2}, DType::i64).set_requires_grad(true), "expected a floating tensor");
}

TEST_F(GraphTest, OneWalkServesRootsOnSeveralDevices) {
  Tensor x = leaf({1, 2}, 0), y = leaf({3, 4}, 1);
  Tensor roots[] = {sum(square(x)), y * 3}, seeds[] = {{}, constant({10, 100}, 1)};
  backward(roots, seeds);
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4}));
  EXPECT_EQ(values(y.grad()), (Numbers{30, 300}));
  EXPECT_EQ(y.grad().device(), runtime_.devices()[1]);
}

TEST_F(GraphTest, ConcatenationSendsGradientsBackToTheirDevices) {
  Tensor x = leaf({1, 2}, 0), y = leaf({3}, 2);
  Tensor parts[] = {x, y};
  Tensor all = concatenate(parts);
  EXPECT_EQ(all.device(), runtime_.devices()[0]);
  sum(square(all)).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4}));
  EXPECT_EQ(values(y.grad()), Numbers{6});
  EXPECT_EQ(y.grad().device(), runtime_.devices()[2]);
}

// A leaf as the graph sees it, such as a parameter.
struct Recorder : GradMeta {
  std::vector<std::pair<int, double>> came;
  void accumulate(const BackwardPass&, Gradient gradient) override {
    for (const auto& addend : gradient.addends)
      came.emplace_back(addend.shard, ops::host_readable(addend.sum.value).item<float>());
  }
};

TEST_F(GraphTest, ALeafGetsOneGradientForEachShard) {
  auto recorder = std::make_shared<Recorder>();
  Tensor w = replicated_tensor({constant({2}, 0)->array(), constant({2}, 1)->array()});
  TensorImpl::of(w).grad = recorder;
  const auto device = [&](std::size_t i) { return runtime_.devices()[i]; };
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{1, 1, 0, 0, 1},
                                              std::vector<Slot>{{0, device(0)}, {1, device(0)}, {4, device(1)}});
  const Tensor x = scatter(Tensor::from<float>({1, 2, 5}, {3, 1}), at);
  sum(w * x + x * w).backward();
  std::ranges::sort(recorder->came);
  EXPECT_EQ(recorder->came, (std::vector<std::pair<int, double>>{{0, 2}, {1, 4}, {4, 10}}));
}

// A shard of one row is its own sum over the rows, in the layout that it has; the other's is plain.
TEST_F(GraphTest, SumsOverShardsMeetInOneLayout) {
  const auto& devices = runtime_.devices();
  const std::vector<Slot> slots{{0, devices[0]}, {1, devices[1]}};
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{2, 1}, slots);
  const Shape row{1, 16, 2, 3};
  const Array x = Random(1).floats({3, 16, 2, 3});
  Numbers expected(static_cast<std::size_t>(row.numel()));
  for (std::size_t i = 0; i < 3 * expected.size(); ++i) expected[i % expected.size()] += x.view().as<float>()[i];
  for (const Layout layout : {Layout::plain, Layout::channels_last, Layout::blocked16}) {
    const Tensor parts = scatter(x, at).to(layout);
    EXPECT_LT(distance(values(sum_to(parts, row)), expected), 1e-6);
    Tensor w = Tensor(Random(2).floats(row)).to(devices[0]).set_requires_grad(true);
    sum(parts * parts * (parts + w) / parts).backward();
    EXPECT_LT(distance(values(w.grad()), expected), 1e-5);
  }
}

// Kernels sum f32 and f64 over shards.
TEST_F(GraphTest, SumsOverShardsMayBeOfShortFloats) {
  const auto& devices = runtime_.devices();
  const std::vector<Slot> slots{{0, devices[0]}, {1, devices[1]}};
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{2, 1}, slots);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = scatter(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}), at).to(dtype);
    EXPECT_EQ(sum(x).dtype(), dtype);
    EXPECT_EQ(values(sum(x)), Numbers{21});
    EXPECT_EQ(values(sum_to(x, {2})), (Numbers{9, 12}));
    Tensor w = constant({1, 10}).to(dtype).set_requires_grad(true);
    sum(x * w).backward();
    EXPECT_EQ(w.grad().dtype(), dtype);
    EXPECT_EQ(values(w.grad()), (Numbers{9, 12}));
  }
}

// Means over shards of 1, 2 and 3 samples, weighted by their share, are the mean over all six.
TEST_F(GraphTest, UnevenShardsWeighAsTheirSamples) {
  Tensor w = leaf({0.5});
  Numbers all{1, 2, 3, 4, 5, 6};
  const auto& devices = runtime_.devices();
  const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{1, 2, 3},
                                              std::vector<Slot>{{0, devices[0]}, {1, devices[0]}, {2, devices[1]}});
  const Tensor x = scatter(make_tensor(all, {6, 1}, devices[0]), at);
  const Tensor target = scatter(make_tensor(Numbers(6, 1), {6, 1}, devices[0]), at);
  const Tensor mean = mse_loss(x * w, target);
  double loss = 0, gradient = 0;
  for (double v : all) {
    loss += (0.5 * v - 1) * (0.5 * v - 1) / 6;
    gradient += 2 * (0.5 * v - 1) * v / 6;
  }
  EXPECT_NEAR(mean.item<float>(), loss, 1e-6);
  mean.backward();
  EXPECT_NEAR(w.grad().item<float>(), gradient, 1e-5);
}

TEST_F(GraphTest, AFailedTaskSurfacesWhereItsGradientIsRead) {
  Tensor logits = as_leaf(make_tensor({1, 2, 3, 4}, {2, 2}, runtime_.devices()[0]));
  Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 7}, {2}).to(runtime_.devices()[0]);
  Tensor loss = cross_entropy(logits, labels);
  loss.backward();
  EXPECT_THROW(loss.item<float>(), TaskError);
  EXPECT_ERROR(logits.grad().wait(), "7");
}

struct Square : Function {
  Tensor x;
  Tensor forward(const Tensor& in) {
    EXPECT_FALSE(grad_enabled());
    x = in;
    return x * x;
  }
  Tensor backward(const Tensor& dy) { return x * dy * 2; }
};

// (a + b, a - b)
struct SumAndDifference : Function {
  std::vector<Tensor> forward(std::span<const Tensor> in) { return {in[0] + in[1], in[0] - in[1]}; }
  std::vector<Tensor> backward(std::span<const Tensor> dy) {
    EXPECT_FALSE(dy[0].defined());
    return {dy[1], -dy[1]};
  }
};

struct Forgetful : Square {
  std::vector<Tensor> backward(const Tensor&) { return {}; }
};

struct Identity : Function {
  Tensor forward(const Tensor& x) { return x; }
  Tensor backward(const Tensor& dy) { return dy; }
};

TEST_F(GraphTest, UsersMayAddFunctions) {
  Tensor x = leaf({1, -2, 3});
  sum(apply<Square>(x) * 2).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{4, -8, 12}));
}

TEST_F(GraphTest, OutputsWithoutInfluenceHaveNoGradient) {
  const std::vector<Tensor> in{leaf({1, 2}), leaf({3, 4})}, out = apply<SumAndDifference>(in);
  sum(out[1] * 3).backward();
  EXPECT_EQ(values(in[0].grad()), (Numbers{3, 3}));
  EXPECT_EQ(values(in[1].grad()), (Numbers{-3, -3}));
}

// The gradients of the other results would be lost.
struct Halves : Function {
  std::vector<Tensor> forward(const Tensor& x) { return {x * 0.5, x * 0.5}; }
  Tensor backward(const Tensor& dy) { return dy * 0.5; }
};

TEST_F(GraphTest, AFunctionTakesTheGradientsOfAllResults) {
  Tensor x = leaf({1, 2});
  const std::vector<Tensor> y = apply<Halves>(x);
  EXPECT_ERROR(sum(y[0] + y[1]).backward(), "forward() returned 2 tensors, and backward() takes the gradient of 1");
}

TEST_F(GraphTest, AFunctionMayReturnItsInput) {
  Tensor x = leaf({1, 2});
  Tensor y = apply<Identity>(x);
  sum(y * 2).backward();
  EXPECT_EQ(values(x.grad()), (Numbers{2, 2}));
  EXPECT_EQ(x->grad->node, nullptr);
}

TEST_F(GraphTest, AFunctionHasToReturnAGradientForEachInput) {
  Tensor x = leaf({1});
  EXPECT_ERROR(apply<Forgetful>(x).backward(), "Forgetful: 0 gradients, expected one for each of 1 inputs");
}

struct Scaled : Function {
  // The gradient of the second input.
  struct Given {
    Tensor gradient;
  } given;
  Tensor forward(const Tensor& x, const Tensor& by, const Given& second) {
    given = second;
    return x * by;
  }
  std::array<Tensor, 2> backward(const Tensor& dy) { return {dy, given.gradient}; }
};

TEST_F(GraphTest, AFunctionsGradientsHaveToBeLikeItsInputs) {
  auto run = [&](const Tensor& gradient) {
    Tensor in[] = {leaf({1, 2, 3}), leaf({4})};
    sum(apply<Scaled>(in[0], in[1], Scaled::Given{gradient})).backward();
    return in[1].grad();
  };
  const std::string expected = ", whole, expected " + leaf({4}).describe() + ", whole";
  for (const Tensor& wrong : {constant({1, 2, 3}), constant({1}).to(DType::bf16), constant({1}, 2)}) {
    EXPECT_ERROR(run(wrong), "Scaled: the gradient of input 1 is " + wrong.describe() + expected);
  }
  EXPECT_EQ(values(run(constant({7}))), Numbers{7});
  EXPECT_FALSE(run({}).defined());
}

// They would be ignored.
TEST_F(GraphTest, AGradientThatIsGivenHasItsShareAndScale) {
  Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  EXPECT_ERROR(backward({y}, {y.detach()}, {.share = 0.5}), "backward: share or scales beside the gradient of");
  backward({y}, {y.detach()});
  EXPECT_EQ(values(x.grad()), (Numbers{4, 8}));
}

TEST_F(GraphTest, AWriteInPlaceKeepsTheShape) {
  Tensor x = constant({1, 2}).detach();
  EXPECT_ERROR(x += full({2, 2}, 1, {.device = x.device()}), "expected the shape of");
  EXPECT_EQ(x.shape(), Shape({2}));
  EXPECT_EQ(chunk(full({0, 2}, 1), 3).size(), 3U);
}

TEST_F(GraphTest, CastsGoBackToTheTypeTheyCameFrom) {
  Tensor x = leaf({1, 2});
  Tensor y = x.to(DType::bf16);
  EXPECT_EQ(y.dtype(), DType::bf16);
  sum(square(y)).backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(values(x.grad()), (Numbers{2, 4}));
}

}  // namespace
}  // namespace lockstep::testing
