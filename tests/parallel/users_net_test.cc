// A net that is more than a chain of layers, trained on every layout: the bits are those of one device.
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 3, kFeatures = 4, kHidden = 6;

// Weight normalization (Salimans and Kingma 2016): w = g v / |v|, with one norm for the whole matrix.
struct WeightNormed : Module {
  Parameter g = add_parameter("g", {.shape = {1, 1}, .initializer = Constant{1}});
  Parameter v = add_parameter("v", {.shape = {kHidden, kFeatures}});
  Tensor weight() const { return v / sqrt(sum(square(v))) * g; }
  Tensor forward(const Tensor& x) override { return linear(x, weight()); }
};

// Two inputs, two outputs; a layer that is used twice; a synchronized batch norm deep inside; steps that become samples
// and back; and a penalty on parameters alone.
struct Net : Module {
  WeightNormed embed;
  Linear mix{{.in_features = kHidden, .out_features = kHidden}};
  BatchNorm2d norm{{.channels = kHidden, .synchronized = true}};
  Dropout dropout{0.25};
  Linear out{{.in_features = kHidden, .out_features = 2}};
  Net() { add("embed", embed), add("mix", mix), add("norm", norm), add("dropout", dropout), add("out", out); }

  // x [B, T, C], mask [B, T, 1]
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) {
    const std::int64_t samples = x.size(0);
    Tensor h = embed((x * mask).reshape({samples * kSteps, kFeatures}));
    h = mix(relu(mix(h)));
    h = norm(h.reshape({samples * kSteps, kHidden, 1, 1})).reshape({samples, kSteps, kHidden});
    // The mean over the batch moves every sample.
    h = h - mean(h) * 0.5;
    const Tensor steps = dropout(h).reshape({samples * kSteps, kHidden});
    return {out(steps), sum(square(embed.weight())) + sum(square(mix.weight)) * 0.1};
  }
};

struct Data {
  Tensor x, mask, labels;
};

Data batch_of(std::int64_t samples, std::uint64_t seed) {
  testing::Random random(seed);
  std::vector<float> mask;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < samples * kSteps; ++i) {
    mask.push_back(random.integer(0, 3) > 0 ? 1 : 0);
    labels.push_back(random.integer(0, 1));
  }
  return {random.floats({samples, kSteps, kFeatures}), Tensor::from(mask, {samples, kSteps, 1}),
          Tensor::from(labels, {samples, kSteps})};
}

constexpr int kShards = 8;
// Even over the shards; uneven; and so few that ranks have none.
const std::vector<std::int64_t> kBatches{16, 13, 2, 16};

struct TrainedNet {
  std::string weights;
  std::vector<float> losses;
  bool operator==(const TrainedNet&) const = default;
};
void PrintTo(const TrainedNet& o, std::ostream* os) {
  *os << o.weights.substr(0, 12);
  for (float loss : o.losses) *os << fmt::format(" {}", loss);
}

TrainedNet train(Net& net, const std::function<std::vector<Tensor>(const Data&)>& cut) {
  Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  TrainedNet outcome;
  for (std::size_t step = 0; step < kBatches.size(); ++step) {
    const std::vector<Tensor> parts = cut(batch_of(kBatches[step], step));
    const auto [logits, penalty] = net.forward(parts[0], parts[1]);
    const Tensor loss = cross_entropy(logits, parts[2].reshape({parts[2].size(0) * kSteps})) + penalty * 1e-3;
    loss.backward();
    sgd.step();
    outcome.losses.push_back(loss.item<float>());
  }
  outcome.weights = weights_sha256(net);
  return outcome;
}

TrainedNet alone(int devices) {
  Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1});
  Net net;
  net.initialize(Xavier{}, runtime.devices());
  return train(net, [&](const Data& data) {
    std::vector<Tensor> parts;
    for (const Tensor& t : {data.x, data.mask, data.labels}) {
      parts.push_back(split_and_load(t, runtime.devices(), {.shards = kShards}));
    }
    return parts;
  });
}

TEST(UsersNet, HasTheSameBitsOnAnyNumberOfDevices) {
  const TrainedNet expected = alone(1);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (int devices : {2, 3, 8}) EXPECT_EQ(alone(devices), expected) << devices;
}

TEST(UsersNet, HasTheSameBitsOnAnyNumberOfRanks) {
  const TrainedNet expected = alone(1);
  for (const auto& [world, devices] : {std::pair{2, 1}, {4, 1}, {2, 2}, {8, 1}}) {
    expect_fine(run_ranks(
        world,
        [&](Rank& r) {
          Net net;
          net.initialize(Xavier{}, r.runtime.devices());
          DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator, {.split = {.shards = kShards}});
          const TrainedNet found = train(net, [&](const Data& data) {
            const std::int64_t samples = data.x.size(0);
            const auto [first, last] = ddp.rows_of(samples);
            std::vector<Tensor> rows;
            for (const Tensor& t : {data.x, data.mask, data.labels}) rows.push_back(t.narrow(0, first, last - first));
            return ddp.split(rows, samples);
          });
          EXPECT_EQ(found, expected) << "rank " << r.rank();
        },
        devices));
  }
}

// PyTorch's users read a loss on rank 0 alone.
TEST(UsersNet, ALossMayBeReadByOneRank) {
  expect_fine(run_ranks(2, [&](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    auto [x, y] = ddp.split<2>({Tensor::host({3, 4}), Tensor::host({3, 2})});
    const Tensor outputs = ddp(x), loss = mse_loss(outputs, y);
    if (r.rank() == 0) {
      EXPECT_EQ(loss.item<float>(), 0);
      EXPECT_ERROR(outputs.to_vector<float>(),
                   "to_vector: rows of [6, 2] f32 on cpu:0 are in other processes: gather() it");
    }
    EXPECT_EQ(gather(outputs, Device()).to_vector<float>().size(), 12U);
  }));
}

}  // namespace
}  // namespace lockstep
