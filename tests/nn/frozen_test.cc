// Frozen parameters add no work to the backward pass.
#include <algorithm>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"
#include "tests/task_names.h"

namespace lockstep::testing {
namespace {

// A net whose first part is a convolution with batch norm, and whose last a layer on top.
struct FineTuned : Module {
  Sequential body, head;
  FineTuned() {
    body.append<Conv2d>(ConvLayerOptions{.in_channels = 1, .out_channels = 4, .kernel_size = 3, .padding = 1});
    body.append<BatchNorm2d>(BatchNorm2dOptions{.channels = 4}).append<ReLU>();
    body.append<GlobalAvgPool2d>().append<Flatten>();
    head.append<Linear>(LinearOptions{.in_features = 4, .out_features = 3});
    add("body", body);
    add("head", head);
  }
  Tensor forward(const Tensor& x) override { return head(body(x)); }
};

class Frozen : public ::testing::Test {
 protected:
  Frozen() { net_.initialize(Xavier{}, runtime_.devices(), {.seed = 3}); }
  Tensor loss() {
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 2}, {2}).to(device_);
    return cross_entropy(net_(x_), labels);
  }
  // The names of the tasks that backward() pushes.
  std::vector<std::string> backward_tasks() {
    const Tensor root = loss();
    return task_names(runtime_.engine(), [&] { root.backward(); });
  }
  bool has_gradient(const Parameter& p) { return p.gradient_state().present(); }

  Runtime runtime_{small_devices(2)};
  Device device_ = runtime_.devices()[0];
  FineTuned net_;
  Tensor x_ = Tensor(Random(1).floats({2, 1, 6, 6})).to(device_);
};

TEST_F(Frozen, NoGradientIsKeptAndTheOthersStayAsTheyWere) {
  loss().backward();
  std::vector<std::vector<float>> expected;
  for (const Parameter& p : net_.head.parameters()) expected.push_back(p.gradient().to_vector<float>());
  for (const Parameter& p : net_.parameters()) p.zero_grad();
  net_.body.freeze();
  for (const Parameter& p : net_.body.parameters()) EXPECT_FALSE(p.trainable());
  loss().backward();
  for (const Parameter& p : net_.body.parameters()) {
    EXPECT_FALSE(has_gradient(p)) << p.name();
    EXPECT_FALSE(p.gradient().defined());
  }
  std::size_t i = 0;
  for (const Parameter& p : net_.head.parameters()) EXPECT_EQ(p.gradient().to_vector<float>(), expected[i++]);
}

TEST_F(Frozen, BackwardEndsAboveAFrozenFirstPart) {
  net_.body.freeze();
  EXPECT_FALSE(net_.body(x_).requires_grad());
  for (const std::string& name : backward_tasks()) {
    EXPECT_EQ(name.find("conv2d"), std::string::npos);
    EXPECT_EQ(name.find("batch norm"), std::string::npos);
    EXPECT_EQ(name.find("pool"), std::string::npos);
  }
}

// A function with one frozen input does not compute what only that input needs.
TEST_F(Frozen, NorIsWhatAFrozenInputWouldGet) {
  const auto count = [&](std::string_view task) { return std::ranges::count(backward_tasks(), task); };
  EXPECT_EQ(count("conv2d backward weights"), 1);
  EXPECT_EQ(count("batch norm backward"), 1);
  // Its batch norm is trained, but nothing before it.
  for (const Parameter& p : net_.parameters()) p.set_trainable(p.name().find("body.0") == std::string::npos);
  EXPECT_EQ(count("conv2d backward weights"), 0);
  EXPECT_EQ(count("batch norm backward stats"), 1);
  EXPECT_EQ(count("batch norm backward"), 0);
  // A filter's bias without the filter.
  net_.freeze();
  net_.body.parameters()[1].set_trainable(true);
  EXPECT_EQ(count("conv2d backward weights"), 0);
}

TEST_F(Frozen, ABiasAloneHasTheGradientThatItHasBesideAFilter) {
  Conv2d conv({.in_channels = 1, .out_channels = 4, .kernel_size = 3});
  conv.initialize(Xavier{}, runtime_.devices());
  const auto gradient = [&] {
    conv.bias.zero_grad();
    sum(square(flatten(conv(x_), 1))).backward();
    return values(conv.bias.gradient());
  };
  const std::vector<double> expected = gradient();
  conv.weight.set_trainable(false);
  EXPECT_LT(distance(gradient(), expected), 1e-6);
}

TEST_F(Frozen, UnfreezingTrainsAgain) {
  net_.freeze();
  EXPECT_ERROR(loss().backward(), "requires a gradient");
  net_.unfreeze();
  loss().backward();
  for (const Parameter& p : net_.parameters()) EXPECT_TRUE(has_gradient(p)) << p.name();
}

TEST_F(Frozen, AGradientFromBeforeIsDropped) {
  loss().backward();
  const Tensor later = loss();
  net_.body.freeze();
  for (const Parameter& p : net_.body.parameters()) EXPECT_FALSE(p.gradient().defined());
  // Recorded while it was trained.
  later.backward();
  for (const Parameter& p : net_.body.parameters()) EXPECT_FALSE(p.gradient().defined());
}

TEST_F(Frozen, AParameterMayBeFrozenBeforeItIsInitialized) {
  Linear net({.out_features = 2});
  net.freeze();
  net.initialize(Xavier{}, runtime_.devices());
  EXPECT_FALSE(net(Tensor(Random(1).floats({1, 3})).to(device_)).requires_grad());
  net.unfreeze();
  EXPECT_TRUE(net(Tensor(Random(1).floats({1, 3})).to(device_)).requires_grad());
}

TEST_F(Frozen, BatchNormsModeIsAnotherMatter) {
  net_.freeze();
  EXPECT_TRUE(net_.training());
  const Parameter mean = net_.named_buffers()[0].second;
  const auto before = replicas(mean);
  net_(x_);
  EXPECT_NE(replicas(mean), before);
}

TEST_F(Frozen, IntegersCannotBeTrained) {
  const auto buffers = net_.named_buffers();
  const auto counter =
      std::ranges::find(buffers, "body.1.num_batches_tracked", &std::pair<std::string, Parameter>::first);
  ASSERT_NE(counter, buffers.end());
  EXPECT_ERROR(counter->second.set_trainable(true),
               "parameter body.1.num_batches_tracked: i64 elements cannot be trained, expected a floating type");
}

}  // namespace
}  // namespace lockstep::testing
