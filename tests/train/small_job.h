// Training jobs that take milliseconds: a small net on random pictures.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/data/tensor_dataset.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/optim/adam.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/trainer.h"
#include "tests/logical_tensors.h"

namespace lockstep {

// {image f32 [1, 6, 6], label i64}
inline std::shared_ptr<const Dataset> random_pictures(std::int64_t count, std::uint64_t seed) {
  testing::Random random(seed);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  for (std::int64_t& label : labels) label = random.integer(0, 4);
  return std::make_shared<TensorDataset>(
      std::vector<Tensor>{random.floats({count, 1, 6, 6}), Tensor::from(labels, {count})});
}

// Everything that has a state of its own: batch norm, dropout, an optimizer with two moments.
struct SmallJob {
  static constexpr std::int64_t kTrain = 46, kTest = 17,
                                kBatch = 10;  // 5 steps an epoch, the last of 6 samples

  // Sorts the net's parameters into the optimizer's groups.
  using MakeGroups = std::function<ParameterGroups(const Module&)>;

  // With a group: as one of its ranks.
  explicit SmallJob(int devices, TrainerOptions options = {}, std::shared_ptr<const Dataset> data = nullptr,
                    std::shared_ptr<ProcessGroup> group = nullptr, int cores_per_device = 0,
                    const MakeGroups& make_groups = nullptr)
      : runtime({.cpu_devices = devices,
                 .cores_per_device = cores_per_device,
                 .threads_per_shard = 1,
                 .seed = options.seed.value_or(0)}) {
    net.append<Conv2d>(ConvLayerOptions{.out_channels = 16, .kernel_size = 3, .padding = 1});
    net.append<BatchNorm2d>().append<ReLU>().append<GlobalAvgPool2d>().append<Flatten>();
    net.append<Dropout>(0.2).append<Linear>(LinearOptions{.out_features = 5});
    net.initialize(Xavier{}, runtime.devices());
    adam = std::make_unique<Adam>(make_groups ? make_groups(net) : ParameterGroups(net.parameters()),
                                  AdamOptions{.lr = 1e-2});
    options.devices = runtime.devices();
    if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
    if (options.split.shards == 0) options.split.shards = 4;
    options.batch_size = kBatch;
    trainer = std::make_unique<Trainer>(net, *adam, data ? data : random_pictures(kTrain, 1), random_pictures(kTest, 2),
                                        options);
    trainer->on_step = [this](const StepReport& report) {
      steps.push_back(report);
      losses.push_back(report.loss);
    };
  }

  Runtime runtime;
  Sequential net;
  std::unique_ptr<Adam> adam;
  std::unique_ptr<Trainer> trainer;
  std::vector<StepReport> steps;
  std::vector<double> losses;
};

}  // namespace lockstep
