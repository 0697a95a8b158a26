
#include "lockstep/nn/batch_norm.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"
#include "tests/task_names.h"

namespace lockstep::testing {
namespace {

const std::vector<std::int64_t> kCounts{2, 3, 1};
const Shape kShape{6, 4, 3, 3};

Tensor input(std::uint64_t seed = 1) { return Random(seed).floats(kShape, -1, 3); }

struct Statistics {
  std::vector<double> mean, var;
};

// Over all samples; the variance is the unbiased one.
Statistics statistics(const Tensor& x) {
  std::vector<float> v = x.to_vector<float>();
  std::int64_t channels = x.size(1), pixels = x.size(2) * x.size(3), n = x.size(0) * pixels;
  Statistics s;
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    auto each = [&](auto f) {
      for (std::int64_t i = 0; i < n; ++i) {
        f(double{v[static_cast<std::size_t>((i / pixels * channels + c) * pixels + i % pixels)]});
      }
    };
    each([&](double a) { sum += a; });
    s.mean.push_back(sum / static_cast<double>(n));
    each([&](double a) { squares += (a - s.mean.back()) * (a - s.mean.back()); });
    s.var.push_back(squares / static_cast<double>(n - 1));
  }
  return s;
}

TEST(BatchNorm2d, ShardsShareRunningStatisticsButNotTheirOwn) {
  Runtime runtime(small_devices(3));
  BatchNorm2d norm;
  norm.initialize(Normal{}, runtime.devices());
  Tensor x = input();
  const Tensor y = norm(make_batch(x, kCounts, runtime.devices()));
  for (const Array& shard : y->parts) EXPECT_LT(distance(statistics(shard).mean, {0, 0, 0, 0}), 1e-5);
  Statistics whole = statistics(x);
  for (Device device : runtime.devices()) {
    std::vector<double> mean = values(norm.running_mean.data(device)), var = values(norm.running_var.data(device));
    for (std::size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(mean[c], 0.1 * whole.mean[c], 1e-6);
      EXPECT_NEAR(var[c], 0.9 + 0.1 * whole.var[c], 1e-6);
    }
    EXPECT_EQ(norm.num_batches_tracked.data(device).item<std::int64_t>(), 1);
  }
}

TEST(BatchNorm2d, RunningStatisticsDoNotDependOnDevices) {
  auto run = [](int devices) {
    Runtime runtime(small_devices(devices));
    Sequential net;
    net.append<BatchNorm2d>();
    net.initialize(Normal{}, runtime.devices());
    for (std::uint64_t batch = 0; batch < 3; ++batch) net(make_batch(input(batch), kCounts, runtime.devices()));
    auto& norm = dynamic_cast<BatchNorm2d&>(net[0]);
    EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 3);
    return std::pair(replicas(norm.running_mean)[0], replicas(norm.running_var).back());
  };
  EXPECT_EQ(run(1), run(3));
}

TEST(BatchNorm2d, EvaluationUsesRunningStatisticsAndLeavesThem) {
  Runtime runtime(small_devices(1));
  BatchNorm2d norm({.channels = 4, .eps = 0.5});
  norm.initialize(Normal{}, runtime.devices());
  norm.running_mean.set_data(Tensor::from<float>({1, 2, 3, 4}, {4}));
  norm.running_var.set_data(Tensor::from<float>({0.5, 3.5, 8.5, 15.5}, {4}));
  norm.eval();
  Tensor x = input();
  std::vector<float> in = x.to_vector<float>(), out = norm(x.to(runtime.devices()[0])).to_vector<float>();
  for (std::size_t i = 0; i < in.size(); ++i) {
    auto c = static_cast<float>(i / 9 % 4);
    ASSERT_NEAR(out[i], (in[i] - (c + 1)) / (c + 1), 1e-5);
  }
  EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 0);
}

// As calls in PyTorch do: the statistics are those of this layer's input, whatever comes after it.
TEST(BatchNorm2d, EachCallMovesTheStatistics) {
  Runtime runtime(small_devices(2));
  BatchNorm2d norm;
  norm.initialize(Normal{}, runtime.devices());
  for (std::uint64_t seed : {1, 2}) norm(make_batch(input(seed), kCounts, runtime.devices()));
  const Tensor x = make_batch(input(3), kCounts, runtime.devices());
  norm(norm(x));
  EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 4);
}

TEST(BatchNorm2d, UsedTwiceMovesTheStatisticsByBothInputs) {
  Runtime runtime(small_devices(2));
  BatchNorm2d norm({.momentum = 0.25});
  norm.initialize(Normal{}, runtime.devices());
  const Tensor x = input(4), y = norm(make_batch(x, kCounts, runtime.devices())) * 3 + 1;
  norm(y);
  const Statistics first = statistics(x), second = statistics(gather(y));
  const std::vector<float> mean = replicas(norm.running_mean)[0], var = replicas(norm.running_var)[1];
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(mean[c], 0.75 * 0.25 * first.mean[c] + 0.25 * second.mean[c], 1e-5);
    EXPECT_NEAR(var[c], 0.75 * (0.75 + 0.25 * first.var[c]) + 0.25 * second.var[c], 1e-4);
  }
}

// DataParallel's way: forward() sees one shard at a time, and the statistics are merged all the same.
TEST(BatchNorm2d, ShardsOneByOneMoveTheStatisticsTogether) {
  const auto run = [](bool one_by_one) {
    Runtime runtime(small_devices(2));
    BatchNorm2d norm;
    norm.initialize(Normal{}, runtime.devices());
    const Tensor x = make_batch(input(1), kCounts, runtime.devices());
    const auto twice = [&](const Tensor& t) { return norm(norm(t)); };
    const Tensor y = one_by_one ? per_shard(twice, x) : twice(x);
    EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 2);
    return std::tuple(y.to_vector<float>(), replicas(norm.running_mean), replicas(norm.running_var));
  };
  EXPECT_EQ(run(true), run(false));
}

// The gradient of x, the output and the parameters' gradients of one training pass.
struct Pass {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> parameters;
};

Pass pass(Module& net, const std::vector<Device>& devices, std::vector<std::int64_t> counts) {
  Tensor x = make_batch(input(), counts, devices);
  x.set_requires_grad(true);
  const Tensor y = net(x);
  mean(square(y)).backward();
  Pass p{values(y), values(x.grad()), {}};
  for (const Parameter& parameter : net.parameters()) p.parameters.push_back(values(parameter.gradient()));
  return p;
}

template <typename T>
std::vector<T> joined(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// The same layers, but Sequential cannot see that a ReLU follows.
struct Hidden : Module {
  ReLU relu;
  Tensor forward(const Tensor& x) override { return relu(x); }
};

TEST(BatchNorm2d, FusedWithReluEqualsUnfused) {
  Runtime runtime(small_devices(2));
  Sequential fused, apart;
  fused.append<BatchNorm2d>().append<ReLU>();
  apart.append<BatchNorm2d>().append<Hidden>();
  for (bool training : {true, false}) {
    std::vector<Pass> passes;
    for (Sequential* net : {&fused, &apart}) {
      net->initialize(Normal{}, runtime.devices(), {.force_reinit = true});
      net->train(training);
      passes.push_back(pass(*net, runtime.devices(), kCounts));
    }
    EXPECT_LT(distance(passes[0].y, passes[1].y), 1e-6);
    EXPECT_LT(distance(passes[0].dx, passes[1].dx), 1e-5);
    EXPECT_LT(distance(joined(passes[0].parameters), joined(passes[1].parameters)), 1e-5);
    EXPECT_GE(*std::ranges::min_element(passes[0].y), 0);
  }
}

// Through a residual block.
TEST(BatchNorm2d, SynchronizedShardsEqualOneBatch) {
  Runtime runtime(small_devices(3));
  Sequential net;
  net.append<Residual>(ResidualOptions{.channels = 4}).append<BatchNorm2d>().append<ReLU>();
  net.initialize(Normal{0.3}, runtime.devices());
  Pass whole = pass(net, runtime.devices(), {6});
  std::vector<std::vector<float>> mean = replicas(net.named_buffers()[0].second);
  convert_sync_batchnorm(net);
  for (int devices : {1, 3}) {
    net.initialize(Normal{0.3}, {runtime.devices().begin(), runtime.devices().begin() + devices},
                   {.force_reinit = true});
    Pass shards = pass(net, net.parameters()[0].devices(), kCounts);
    EXPECT_LT(distance(shards.y, whole.y), 1e-5);
    EXPECT_LT(distance(shards.dx, whole.dx), 1e-4);
    EXPECT_LT(distance(joined(shards.parameters), joined(whole.parameters)), 1e-4);
    auto counted = net.named_buffers()[2].second.host_data();
    EXPECT_EQ(counted.item<std::int64_t>(), 1);
    auto merged = replicas(net.named_buffers()[0].second)[0];
    EXPECT_LT(distance({merged.begin(), merged.end()}, {mean[0].begin(), mean[0].end()}), 1e-5);
  }
}

// As images of one row, bit by bit: [N, C, L] is [N, C, 1, L], and [N, C] is [N, C, 1, 1].
TEST(BatchNorm1d, SequencesAreImagesOfOneRow) {
  Runtime runtime(small_devices(2));
  using Bits = std::vector<std::vector<float>>;
  const auto run = [&](auto make, const Shape& shape, bool synchronized) {
    Sequential net;
    net.append(make());
    net.initialize(Normal{}, runtime.devices());
    if (synchronized) convert_sync_batchnorm(net);
    // A shard needs more than one value for each channel.
    const std::vector<std::int64_t> counts{2, 4};
    Tensor x = make_batch(input().reshape(shape), counts, runtime.devices()).set_requires_grad(true);
    const Tensor y = net(x);
    EXPECT_EQ(y.shape(), shape);
    sum(square(y + 1) * x.detach()).backward();
    net.eval();
    Bits bits{y.to_vector<float>(), x.grad().to_vector<float>(), net(x).to_vector<float>()};
    for (const Parameter& p : net.parameters()) bits.push_back(p.gradient().to_vector<float>());
    for (const char* name : {"0.running_mean", "0.running_var"}) bits.push_back(replicas(net.buffer(name))[1]);
    EXPECT_EQ(net.buffer("0.num_batches_tracked").host_data().item<std::int64_t>(), 1);
    return bits;
  };
  const auto one = [] { return BatchNorm1d(); };
  const auto two = [] { return BatchNorm2d(); };
  for (bool synchronized : {false, true}) {
    EXPECT_EQ(run(one, {6, 4, 9}, synchronized), run(two, {6, 4, 1, 9}, synchronized));
    EXPECT_EQ(run(one, {6, 36}, synchronized), run(two, {6, 36, 1, 1}, synchronized));
  }
}

TEST(BatchNorm1d, RunsAsOneOperationWithARelu) {
  Runtime runtime(small_devices(1));
  Sequential net;
  net.append<BatchNorm1d>().append<ReLU>();
  net.initialize(Normal{}, runtime.devices());
  const Tensor x = input().reshape({6, 36}).to(runtime.devices()[0]);
  Tensor y;
  for (const std::string& task : task_names(runtime.engine(), [&] { y = net(x); })) EXPECT_NE(task, "relu");
  EXPECT_EQ(y.shape(), (Shape{6, 36}));
  for (double v : values(y)) EXPECT_GE(v, 0);
  // With a residual in the shape of x.
  EXPECT_EQ(net.at<BatchNorm1d>(0).forward_fused(x, x, true).shape(), (Shape{6, 36}));
}

// As in PyTorch: the output would be the bias, whatever the input.
TEST(BatchNorm1d, AShardOfOneValueIsAnErrorInTraining) {
  Runtime runtime(small_devices(2));
  BatchNorm1d norm({.channels = 2});
  norm.initialize(Normal{}, runtime.devices());
  const auto batch = [&](const std::vector<std::int64_t>& counts, Shape shape) {
    return make_batch(Tensor::host(shape), counts, runtime.devices());
  };
  const Tensor remainder = batch({2, 2, 1, 0}, {5, 2});
  EXPECT_ERROR(
      norm(remainder),
      "batch_norm: shard 2 of 4 has 1 sample with 1 value per channel (5 samples in all), expected more than 1 "
      "value per channel in training: use statistics over the whole batch (convert_sync_batchnorm()), another "
      "batch size or number of shards, or a loader with drop_last");
  EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 0);
  const Tensor single = Tensor::host({1, 2}).to(runtime.devices()[0]);
  EXPECT_ERROR(norm(single),
               fmt::format("batch_norm: input is [1, 2, 1, 1] f32 on {}, expected more than 1 value per channel",
                           runtime.devices()[0].name()));
  EXPECT_ERROR(per_shard([&](const Tensor& x) { return norm(x); }, remainder), "batch_norm: shard 2 of 4 has 1 sample");
  // One sample of several values, or the whole batch.
  EXPECT_EQ(norm(batch({2, 2, 1, 0}, {5, 2, 3})).size(0), 5);
  EXPECT_EQ(per_shard([&](const Tensor& x) { return norm(x); }, batch({2, 1}, {3, 2, 3})).size(0), 3);
  norm.set_synchronized(true);
  EXPECT_EQ(norm(remainder).size(0), 5);
  EXPECT_EQ(norm(batch({1, 1}, {2, 2})).size(0), 2);
  EXPECT_ERROR(norm(batch({1, 0}, {1, 2})), "expected more than 1 value per channel in training: use a larger batch");
  norm.eval();
  norm.set_synchronized(false);
  EXPECT_EQ(norm(remainder).size(0), 5);
  EXPECT_EQ(norm(single).size(0), 1);
}

// PyTorch's gradients are 0, and it counts the batch.
TEST(BatchNorm2d, NoSamplesHaveNoStatistics) {
  Runtime runtime(small_devices(1));
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const bool cut : {false, true}) {
      BatchNorm2d norm({.channels = 3, .synchronized = cut});
      norm.initialize(Normal{}, runtime.devices());
      norm.to(dtype);
      const Tensor none = Tensor::host({0, 3, 5, 5}, dtype);
      const Tensor x = cut ? make_batch(none, {0, 0}, runtime.devices()) : none.to(runtime.devices()[0]);
      sum(norm(x)).backward();
      for (const Parameter& p : norm.parameters()) {
        const Tensor g = p.gradient();
        EXPECT_EQ(g.defined(), !cut);  // a missing shard has none
        if (cut) continue;
        EXPECT_EQ(values(g), (std::vector<double>{0, 0, 0})) << p.name();
      }
      EXPECT_EQ(norm.num_batches_tracked.host_data().item<std::int64_t>(), 1);
      const Device device = runtime.devices()[0];
      EXPECT_EQ(values(norm.running_mean.data(device)), (std::vector<double>{0, 0, 0}));
      EXPECT_EQ(values(norm.running_var.data(device)), (std::vector<double>{1, 1, 1}));
    }
  }
}

TEST(BatchNorm1d, NamesWhatItCannotTake) {
  Runtime runtime(small_devices(1));
  BatchNorm1d norm({.channels = 4});
  norm.initialize(Normal{}, runtime.devices());
  const auto on = [&](const Shape& shape) { return Tensor::host(shape).to(runtime.devices()[0]); };
  EXPECT_ERROR(norm(on({4})), "expected 2 axes (N, C) or 3 (N, C, L)");
  EXPECT_ERROR(norm(on({2, 4, 3, 3})), "expected 2 axes (N, C) or 3 (N, C, L)");
  EXPECT_ERROR(norm(on({2, 3})), "batch_norm: input has 3 channels, weight expects 4");
  EXPECT_EQ(names(norm.named_parameters()), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(names(norm.named_buffers()),
            (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}));
}

}  // namespace
}  // namespace lockstep::testing
