#include "lockstep/parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/nn/summary.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// The tutorial's model: Linear(5, 2) that tells what its replicas see.
struct Watched : Module {
  Linear fc{{.in_features = 5, .out_features = 2}};
  std::vector<std::int64_t> sizes;
  std::vector<std::string> devices;

  Watched() { add("fc", fc); }
  Tensor forward(const Tensor& x) override {
    sizes.push_back(x.size(0));
    devices.emplace_back(x.device().name());
    return fc(x);
  }
};

using Sizes = std::vector<std::int64_t>;

TEST(DataParallel, ShowsEachReplicaItsChunkInDeviceOrder) {
  const std::vector<std::pair<int, std::pair<Sizes, Sizes>>> table{{1, {{30}, {10}}},
                                                                   {2, {{15, 15}, {5, 5}}},
                                                                   {3, {{10, 10, 10}, {4, 4, 2}}},
                                                                   {8, {{4, 4, 4, 4, 4, 4, 4, 2}, {2, 2, 2, 2, 2}}}};
  for (const auto& [devices, sizes] : table) {
    Runtime runtime({.cpu_devices = devices});
    Watched net;
    net.initialize(Normal{1}, runtime.devices());
    DataParallel parallel(net, runtime.devices());
    for (const auto& [n, inside] : {std::pair(30, sizes.first), std::pair(10, sizes.second)}) {
      net.sizes.clear();
      net.devices.clear();
      const Tensor y = parallel(testing::Random(1).floats({n, 5}));
      EXPECT_EQ(y.shape(), (Shape{n, 2}));
      EXPECT_EQ(y.device(), runtime.devices()[0]);
      ASSERT_EQ(net.sizes, inside) << devices << " devices";
      for (std::size_t i = 0; i < inside.size(); ++i) EXPECT_EQ(net.devices[i], runtime.devices()[i].name());
    }
  }
}

TEST(DataParallel, ComputesWhatTheModelComputes) {
  Runtime runtime({.cpu_devices = 3});
  Watched net;
  net.initialize(Normal{1}, runtime.devices());
  const Tensor x = testing::Random(2).floats({10, 5});
  const std::vector<double> plain = testing::values(net(x.to(runtime.devices()[0])));
  EXPECT_LT(testing::distance(testing::values(DataParallel(net, runtime.devices())(x)), plain), 1e-6);
  EXPECT_LT(testing::distance(testing::values(DataParallel(net, runtime.devices(), {.shards = 8})(x)), plain), 1e-6);
  // On one device it is the model itself.
  EXPECT_EQ(testing::values(DataParallel(net, {runtime.devices()[0]})(x)), plain);
}

TEST(DataParallel, TrainsTheModelItWraps) {
  // A loss of the gathered output has the gradients of the plain model's.
  Runtime runtime({.cpu_devices = 3});
  const Tensor x = testing::Random(3).floats({10, 5}), target = testing::Random(4).floats({10, 2});
  auto gradient = [&](bool wrapped) {
    Watched net;
    net.initialize(Normal{1}, runtime.devices());
    const Device first = runtime.devices()[0];
    const Tensor y = wrapped ? DataParallel(net, runtime.devices())(x) : net(x.to(first));
    mse_loss(y, target.to(first)).backward();
    std::vector<double> gradients = testing::values(net.fc.weight.gradient());
    Sgd(net.parameters(), {.lr = 0.5}).step();
    // All replicas move alike.
    for (const Device device : runtime.devices()) {
      EXPECT_EQ(net.fc.weight.data(device).to_vector<float>(), net.fc.weight.data(first).to_vector<float>());
    }
    return gradients;
  };
  EXPECT_LT(testing::distance(gradient(true), gradient(false)), 1e-6);
}

// PyTorch's is a Module, too.
TEST(DataParallel, PassesOnParametersAndMode) {
  Runtime runtime({.cpu_devices = 2});
  Watched net;
  net.initialize(Normal{1}, runtime.devices());
  DataParallel parallel(net, runtime.devices());
  EXPECT_EQ(parallel.parameters(), net.parameters());
  EXPECT_EQ(parallel.named_parameters()[0].first, net.named_parameters()[0].first);
  parallel.eval();
  EXPECT_FALSE(net.training());
}

TEST(DataParallel, PassesOnState) {
  Runtime runtime({.cpu_devices = 2});
  const auto make = [&](Sequential& net) {
    net.append<Conv2d>({.out_channels = 3, .kernel_size = 1}).append<BatchNorm2d>();
    net.initialize(Normal{1}, runtime.devices());
  };
  Sequential net, other;
  make(net);
  DataParallel parallel(net, runtime.devices());
  parallel(testing::Random(1).floats({5, 2, 3, 3}));
  EXPECT_EQ(net.buffer("1.num_batches_tracked").host_data().item<std::int64_t>(), 1);
  const StateDict own = state_dict(net), state = state_dict(parallel);
  const auto values = [&](const Tensor& t) { return testing::values(t.to(runtime.devices()[0])); };
  ASSERT_EQ(state.size(), 7U);
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(state[i].first, own[i].first);
    EXPECT_EQ(values(state[i].second), values(own[i].second)) << own[i].first;
  }
  // The running statistics are among them, and have moved.
  EXPECT_EQ(state[4].first, "1.running_mean");
  EXPECT_NE(values(state[4].second), std::vector<double>(3, 0));
  make(other);
  DataParallel loaded(other, runtime.devices());
  load_state_dict(loaded, state);
  EXPECT_EQ(weights_sha256(other), weights_sha256(net));

  parallel.eval();
  EXPECT_FALSE(net[1].training());
  parallel.train();
  EXPECT_TRUE(net.training() && net[1].training());
  parallel(testing::Random(2).floats({5, 2, 3, 3}));
  EXPECT_EQ(net.buffer("1.num_batches_tracked").host_data().item<std::int64_t>(), 2);
}

// The wrapper has the whole batch, the model and its layers the last shard.
TEST(DataParallel, ShowsItsOutputsInASummary) {
  Runtime runtime({.cpu_devices = 2});
  Watched net;
  net.initialize(Normal{1}, runtime.devices());
  DataParallel parallel(net, runtime.devices());
  const std::string table = summary(parallel, {5, 5});
  EXPECT_THAT(table, HasSubstr("DataParallel"));
  EXPECT_THAT(table, HasSubstr("  [5, 2]                 0\n       Watched "));
  EXPECT_THAT(table, HasSubstr("  [2, 2]                 0\nfc     Linear "));
  EXPECT_THAT(table, HasSubstr("  [2, 2]                12  trainable\n"));
}

struct Weighted : Module {
  Tensor forward(const Tensor& x, const Tensor& weights) {
    rows.push_back(x.size(0));
    return x * weights;
  }
  std::vector<std::int64_t> rows;
};

TEST(DataParallel, SplitsEveryArgument) {
  Runtime runtime({.cpu_devices = 2});
  Weighted net;
  DataParallel parallel(net, runtime.devices());
  const Tensor x = Tensor::from<float>({1, 2, 3}, {3, 1}), w = Tensor::from<float>({4, 5, 6}, {3, 1});
  EXPECT_EQ(parallel(x, w).to_vector<float>(), (std::vector<float>{4, 10, 18}));
  EXPECT_EQ(net.rows, (std::vector<std::int64_t>{2, 1}));
}

TEST(DataParallel, GathersEveryOutput) {
  struct Parts : Module {
    std::tuple<Tensor, Tensor> forward(const Tensor& x, double shift = 1) { return {x + shift, sum(x, 1)}; }
  } parts;
  // By value: a function with the parameters of the virtual one could not return another type.
  struct Halves : Module {
    std::array<Tensor, 2> forward(Tensor x) { return {narrow(x, 1, 0, 1), narrow(x, 1, 1, 1)}; }
  } halves;
  struct Sums : Module {
    std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& y) { return {x + y, x * y}; }
  } sums;
  Runtime runtime({.cpu_devices = 2});
  const Device home = runtime.devices()[0];
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}), y = ones({3, 2});
  DataParallel parallel(parts, runtime.devices(), {.shards = 3});
  const auto [more, total] = parallel(x);
  EXPECT_EQ(more.device(), home);
  EXPECT_EQ(more.to_vector<float>(), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(total.device(), home);
  EXPECT_EQ(total.to_vector<float>(), (std::vector<float>{3, 7, 11}));
  const auto [left, right] = DataParallel(halves, runtime.devices())(x);
  EXPECT_EQ(left.to_vector<float>(), (std::vector<float>{1, 3, 5}));
  EXPECT_EQ(right.to_vector<float>(), (std::vector<float>{2, 4, 6}));
  DataParallel both(sums, runtime.devices());
  const auto [sum, product] = both(x, y);
  EXPECT_EQ(sum.to_vector<float>(), more.to_vector<float>());
  EXPECT_EQ(product.to_vector<float>(), x.to_vector<float>());
  // The virtual forward() cannot return several tensors.
  EXPECT_ERROR(static_cast<Module&>(parallel)(x), "call its own forward()");
}

// Its forward() hides the virtual one, which operator() would call.
TEST(DataParallel, CallsAForwardThatHasDefaultArguments) {
  struct Scaled : Module {
    Tensor forward(const Tensor& x, const Tensor& shift = {}) { return shift.defined() ? x + shift : x + x; }
  } scaled;
  Runtime runtime({.cpu_devices = 2});
  DataParallel net(scaled, runtime.devices());
  EXPECT_EQ(net(ones({4, 1})).to_vector<float>(), std::vector<float>(4, 2));
}

TEST(DataParallel, RefusesNoDevicesAndNoSamples) {
  Runtime runtime;
  Watched net;
  net.initialize(Normal{1}, runtime.devices());
  EXPECT_ERROR(DataParallel(net, {}), "data_parallel: no devices");
  DataParallel parallel(net, runtime.devices());
  EXPECT_ERROR(parallel(Tensor::host({0, 5})), "expected at least one sample");
  EXPECT_ERROR(parallel(Tensor::host({})), "expected at least one sample");
}

TEST(DataParallel, NamesTheDevicesOfAModelThatIsElsewhere) {
  Runtime runtime({.cpu_devices = 2});
  Watched net;
  net.initialize(Normal{1}, {runtime.devices()[0]});
  EXPECT_ERROR(DataParallel(net, runtime.devices())(Tensor::host({4, 5})), std::string(runtime.devices()[0].name()));
}

}  // namespace
}  // namespace lockstep
