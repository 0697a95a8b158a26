// All layers up to this one together: a small net trained for a few steps.
#include <gtest/gtest.h>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/lbfgs.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr int kShards = 5;
constexpr std::int64_t kSamples = 2;  // in each shard, but one less in the last

class Training {
 public:
  Training(RuntimeOptions options, bool synchronized) : runtime_(options) {
    net_.append<Conv2d>(ConvLayerOptions{.out_channels = 16, .kernel_size = 3, .padding = 1});
    net_.append<BatchNorm2d>().append<ReLU>();
    net_.append<Residual>(ResidualOptions{.channels = 16, .stride = 2, .project = true});
    net_.append<GlobalAvgPool2d>().append<Flatten>().append<Dropout>(0.3);
    net_.append<Linear>(LinearOptions{.out_features = 3});
    if (synchronized) convert_sync_batchnorm(net_);
    net_.initialize(Kaiming{}, runtime_.devices(), {.seed = 2});
    optimizer_ = std::make_unique<Sgd>(net_.parameters(), SgdOptions{.lr = 0.1, .momentum = 0.9});
  }

  double step() {
    std::vector<std::int64_t> rows, classes;
    std::vector<Slot> slots;
    std::vector<float> pixels;
    for (int s = 0; s < kShards; ++s) {
      std::int64_t n = kSamples - (s + 1 == kShards);
      for (std::int64_t i = 0; i < n; ++i) classes.push_back(random_.integer(0, 2));
      const std::vector<float> more = random_.floats({n, 1, 6, 6}).to_vector<float>();
      pixels.insert(pixels.end(), more.begin(), more.end());
      auto place = static_cast<std::size_t>(s) * runtime_.devices().size() / kShards;
      slots.push_back({s, runtime_.devices()[place]});
      rows.push_back(n);
    }
    const std::int64_t samples = std::ssize(classes);
    const auto at = std::make_shared<Placement>(rows, slots);
    const Tensor x = scatter(Tensor::from(pixels, {samples, 1, 6, 6}), at),
                 labels = scatter(Tensor::from(classes, {samples}), at);
    const Tensor loss = cross_entropy(net_(x), labels);
    loss.backward();
    optimizer_->clip_grad_norm(1);
    optimizer_->step();
    return loss.item<float>();
  }

  std::vector<std::vector<double>> state() {
    std::vector<std::vector<double>> all;
    for (auto& [name, tensor] : state_dict(net_)) all.push_back(values(tensor.to(runtime_.devices()[0])));
    return all;
  }
  std::int64_t system_allocations() {
    std::int64_t n = 0;
    for (Device device : runtime_.devices()) n += runtime_.memory(device).system_allocations;
    return n;
  }

 private:
  Runtime runtime_;
  Sequential net_;
  std::unique_ptr<Optimizer> optimizer_;
  Random random_{1};
};

RuntimeOptions devices(int n) { return {.cpu_devices = n, .cores_per_device = 1, .threads_per_shard = 1, .seed = 9}; }

class TrainingTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BatchNorms, TrainingTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "synchronized" : "own"; });

// The bits of the weights depend on the number of shards, not on that of devices.
TEST_P(TrainingTest, BitsDoNotDependOnDevices) {
  std::vector<double> expected_losses;
  std::vector<std::vector<double>> expected_state;
  for (int n : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(n);
    Training training(devices(n), GetParam());
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) losses.push_back(training.step());
    if (n == 1) {
      expected_losses = losses;
      expected_state = training.state();
    }
    EXPECT_EQ(losses, expected_losses);
    EXPECT_EQ(training.state(), expected_state);
  }
}

TEST_P(TrainingTest, SerialEqualsThreaded) {
  RuntimeOptions serial = devices(2);
  serial.serial = true;
  Training a(devices(2), GetParam()), b(serial, GetParam());
  for (int step = 0; step < 3; ++step) EXPECT_EQ(a.step(), b.step());
  EXPECT_EQ(a.state(), b.state());
}

TEST_P(TrainingTest, ASteadyLoopAllocatesNothing) {
  Training training(devices(2), GetParam());
  for (int step = 0; step < 3; ++step) training.step();
  std::int64_t before = training.system_allocations();
  for (int step = 0; step < 5; ++step) training.step();
  EXPECT_EQ(training.system_allocations(), before);
}

// The shards alone decide the bits of LBFGS, too. tests/models compares it with PyTorch.
TEST(LbfgsTest, DevicesDoNotMatterAndErrorsChangeNothing) {
  Runtime runtime({.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1});
  const Tensor x = Tensor::from(Random(2).uniforms(18), {6, 3}, {.dtype = DType::f32});
  const auto trained = [&](std::size_t devices) {
    const std::vector<Device> used(runtime.devices().begin(), runtime.devices().begin() + devices);
    Sequential net(Linear(3, 4), Tanh(), Linear(4, 1));
    net.initialize(Normal(0.5), used, {.seed = 2});
    const auto at = std::make_shared<Placement>(std::vector<std::int64_t>{3, 2, 1},
                                                std::vector<Slot>{{0, used[0]}, {1, used[0]}, {2, used[devices - 1]}});
    const Tensor batch = scatter(x, at);
    LBFGS lbfgs(net.parameters(), {.max_iter = 4, .line_search = LineSearch::strong_wolfe});
    std::vector<double> all;
    int calls = 0, failing = 0;
    const auto closure = [&] {
      check(++calls != failing, "no loss");
      Tensor loss = mean(square(net(batch) - sum(batch, 1, true)));
      loss.backward();
      return loss;
    };
    const auto note = [&] {
      for (const Parameter& p : net.parameters()) {
        for (const double v : values(p.data(used.back()))) all.push_back(v);
      }
    };
    for (int step = 0; step < 2; ++step) all.push_back(lbfgs.step(closure).item());
    note();
    const std::vector<double> before = all;
    failing = calls + 3;
    EXPECT_ERROR(lbfgs.step(closure), "no loss");
    all.resize(2);
    note();
    EXPECT_EQ(all, before);
    EXPECT_ERROR(lbfgs.step([] { return Tensor(); }), "lbfgs: the closure returned");
    all.push_back(lbfgs.step(closure).item());
    EXPECT_LT(all.back(), all[1]);
    note();
    return all;
  };
  EXPECT_EQ(trained(2), trained(1));
}

// The loss is 1, and its gradient infinite.
TEST(LbfgsTest, AGradientThatIsNotFiniteChangesNothing) {
  Runtime runtime;
  struct Net : Module {
    const Parameter p = add_parameter("p", {.shape = {2}, .initializer = Constant{0}});
  } net;
  net.initialize(Constant{0}, runtime.devices());
  for (const LineSearch search : {LineSearch::none, LineSearch::strong_wolfe}) {
    LBFGS lbfgs(net.parameters(), {.max_iter = 1, .line_search = search});
    EXPECT_ERROR(lbfgs.step([&] {
      Tensor loss = sum(sqrt(net.p.tensor())) + 1.0;
      loss.backward();
      return loss;
    }),
                 "lbfgs: the largest gradient is inf, expected a finite number");
    EXPECT_EQ(values(net.p.data(runtime.devices()[0])), (std::vector<double>{0, 0}));
  }
}

}  // namespace
}  // namespace lockstep::testing
