#include "lockstep/parallel/recorded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
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
#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

constexpr int kShards = 3;

RuntimeOptions devices(int n, bool serial = false) {
  return {.cpu_devices = n, .cores_per_device = 1, .threads_per_shard = 1, .serial = serial, .seed = 9};
}

struct StepRecipe {
  bool synchronized = false;
  bool adam = false;
  double clip = 0;
  double dropout = 0;
  double penalty = 0;   // on the sum of all parameters' squares
  bool groups = false;  // biases and norms do not decay, and have a rate of their own
  bool parallel_operations = false;
};

// A small net with all that a step has to do. Step k is the same whether it is described or repeated.
class Training {
 public:
  Training(const RuntimeOptions& options, StepRecipe recipe, bool recorded)
      : runtime_(options), recipe_(recipe), recorded_(recorded) {
    net_.append<Conv2d>(ConvLayerOptions{.out_channels = 4, .kernel_size = 3, .padding = 1});
    net_.append<BatchNorm2d>().append<ReLU>();
    net_.append<Residual>(ResidualOptions{.channels = 8, .stride = 2, .project = true});
    net_.append<GlobalAvgPool2d>().append<Flatten>();
    if (recipe.dropout > 0) net_.append<Dropout>(recipe.dropout);
    net_.append<Linear>(LinearOptions{.out_features = 3});
    if (recipe.synchronized) convert_sync_batchnorm(net_);
    net_.initialize(Kaiming{}, runtime_.devices(), {.seed = 2});
    ParameterGroups parameters = net_.parameters();
    if (recipe.groups) {
      std::vector<Parameter> matrices, others;
      for (const Parameter& p : net_.parameters()) (p.shape().dim() > 1 ? matrices : others).push_back(p);
      parameters = {{.parameters = matrices}, {.parameters = others, .lr = 0.05, .weight_decay = 0}};
    }
    if (recipe.adam) {
      optimizer_ = std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
    } else {
      optimizer_ = std::make_unique<Sgd>(
          parameters, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    }
  }

  // The mean loss, before anything else has happened to it.
  double step(std::int64_t samples = 7) {
    std::vector<std::int64_t> classes;
    for (std::int64_t i = 0; i < samples; ++i) classes.push_back(random_.integer(0, 2));
    Tensor x = split_and_load(random_.floats({samples, 1, 6, 6}), runtime_.devices(), {.shards = kShards});
    Tensor labels = split_and_load(Tensor::from(classes, {samples}), runtime_.devices(), {.shards = kShards});
    const std::vector<Tensor> inputs{x, labels};
    optimizer_->set_learning_rate(0.1 / static_cast<double>(1 + optimizer_->steps()));
    return (recorded_ ? recording_.run(inputs) : describe(inputs))[0].item<float>();
  }

  std::vector<std::vector<double>> state() {
    std::vector<std::vector<double>> all;
    for (auto& [name, tensor] : state_dict(net_)) all.push_back(values(tensor.to(runtime_.devices()[0])));
    for (auto& [name, tensor] : optimizer_->state_dict()) all.push_back(values(tensor.to(runtime_.devices()[0])));
    return all;
  }

  std::int64_t system_allocations() {
    std::int64_t n = 0;
    for (Device device : runtime_.devices()) n += runtime_.memory(device).system_allocations;
    return n;
  }

  Runtime& runtime() { return runtime_; }
  Module& net() { return net_; }
  RecordedStep& recording() { return recording_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  std::vector<Tensor> describe(std::span<const Tensor> inputs) {
    std::optional<InterOpParallelGuard> parallel;
    if (recipe_.parallel_operations) parallel.emplace();
    Tensor loss = cross_entropy(net_(inputs[0]), inputs[1]);
    if (recipe_.penalty > 0) {
      for (const Parameter& p : net_.parameters()) loss += sum(square(p)) * recipe_.penalty;
    }
    loss.backward();
    if (recipe_.clip > 0) optimizer_->clip_grad_norm(recipe_.clip);
    optimizer_->step();
    return {loss};
  }

  Runtime runtime_;
  const StepRecipe recipe_;
  const bool recorded_;
  Sequential net_;
  std::unique_ptr<Optimizer> optimizer_;
  RecordedStep recording_{[this](std::span<const Tensor> inputs) { return describe(inputs); }};
  Random random_{1};
};

void expect_same_bits(const RuntimeOptions& options, StepRecipe recipe,
                      const std::function<void(Training&)>& between = {}) {
  StepRecipe one_by_one = recipe;
  one_by_one.parallel_operations = false;
  Training described(options, one_by_one, false), recorded(options, recipe, true);
  for (int step = 0; step < 7; ++step) {
    SCOPED_TRACE(step);
    // The last batch of an epoch is shorter.
    const std::int64_t samples = step == 4 ? 4 : 7;
    EXPECT_EQ(recorded.step(samples), described.step(samples));
    if (between) between(recorded);
  }
  EXPECT_TRUE(recorded.recording().recorded()) << recorded.recording().why_not();
  // The first task: the input becomes a convolution's.
  const std::string why_no_graph = recorded.recording().why_no_graph();
  if (recorded.runtime().devices()[0].kind() == DeviceKind::cuda) {
    EXPECT_EQ(why_no_graph, "");
  } else {
    EXPECT_THAT(why_no_graph, ::testing::EndsWith(" runs on cpu:0"));
  }
  EXPECT_EQ(recorded.state(), described.state());
}

class RecordedStepTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Devices, RecordedStepTest, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(RecordedStepTest, HasTheBitsOfADescribedOne) { expect_same_bits(devices(GetParam()), {}); }
TEST_P(RecordedStepTest, AlsoWithSynchronizedBatchNorm) {
  expect_same_bits(devices(GetParam()), {.synchronized = true});
}
TEST_P(RecordedStepTest, AlsoWithAPenaltyOnParameters) {
  expect_same_bits(devices(GetParam()), {.synchronized = true, .penalty = 0.01});
}
TEST_P(RecordedStepTest, AlsoWithAdamWAndClipping) {
  expect_same_bits(devices(GetParam()), {.adam = true, .clip = 0.1});
}
TEST_P(RecordedStepTest, AlsoWithGroupsOfParameters) {
  expect_same_bits(devices(GetParam()), {.groups = true});
  expect_same_bits(devices(GetParam()), {.adam = true, .clip = 0.1, .groups = true});
}
TEST_P(RecordedStepTest, AlsoWithDropout) { expect_same_bits(devices(GetParam()), {.dropout = 0.3}); }
// Replicas have one mask, and another one in each step.
TEST_P(RecordedStepTest, AlsoWithDropoutOfParameters) {
  const auto train = [](bool recorded) {
    Runtime runtime(devices(GetParam()));
    Parameter w(ParameterOptions{.shape = {4, 2}});
    w.initialize("w", runtime.devices(), Uniform{1}, 1);
    Sgd sgd({w}, {.lr = 0.1});
    const auto describe = [&](std::span<const Tensor> in) {
      const Tensor loss = mse_loss(matmul(in[0], dropout(w, 0.5)), in[1]);
      loss.backward();
      sgd.step();
      return std::vector{loss};
    };
    RecordedStep step(describe);
    Random random(3);
    std::vector<std::vector<double>> found;
    for (int i = 0; i < 7; ++i) {
      const std::vector<Tensor> batch{split_and_load(random.floats({6, 4}), runtime.devices(), {.shards = kShards}),
                                      split_and_load(random.floats({6, 2}), runtime.devices(), {.shards = kShards})};
      found.push_back(values((recorded ? step.run(batch) : describe(batch))[0]));
    }
    EXPECT_EQ(step.recorded(), recorded) << step.why_not();
    for (Device device : runtime.devices()) found.push_back(values(w.data(device)));
    return found;
  };
  EXPECT_EQ(train(true), train(false));
}
// Each task on the lane that the engine chose when it was recorded.
TEST_P(RecordedStepTest, AlsoWithOperationsInParallel) {
  RuntimeOptions several_lanes = devices(GetParam());
  several_lanes.cores_per_device = 2;
  expect_same_bits(several_lanes, {.synchronized = true, .dropout = 0.3, .parallel_operations = true});
  expect_same_bits(several_lanes, {.adam = true, .clip = 0.1, .groups = true, .parallel_operations = true});
}
TEST_P(RecordedStepTest, AlsoOnTheSerialEngine) { expect_same_bits(devices(GetParam(), true), {.clip = 0.1}); }

// Other work between two steps takes none of the memory that the next one will use.
TEST_P(RecordedStepTest, AlsoWhereOtherWorkComesBetween) {
  expect_same_bits(devices(GetParam()), {}, [](Training& training) {
    Random random(3);
    training.net().eval();
    NoGradGuard no_grad;
    for (Device device : training.runtime().devices()) {
      Tensor y = training.net()(Tensor(random.floats({7, 1, 6, 6})).to(device));
      for (int i = 0; i < 5; ++i) y = y.to(DType::bf16).to(DType::f32);
      y.wait();
    }
    training.net().train();
  });
}

// Several updates in one: each has its own rates.
TEST_P(RecordedStepTest, AlsoWithSeveralUpdates) {
  std::vector<std::vector<float>> weights;
  for (const bool recorded : {false, true}) {
    Runtime runtime(devices(GetParam()));
    const Device device = runtime.devices().back();
    Linear net({.out_features = 2});
    net.initialize(Xavier{}, {device});
    Adam adam(net.parameters(), {.lr = 0.1});
    const auto describe = [&](std::span<const Tensor> in) {
      for (int i = 0; i < 2; ++i) {
        cross_entropy(net(in[0]), in[1]).backward();
        adam.step();
      }
      return std::vector<Tensor>{};
    };
    RecordedStep step(describe);
    Random random(4);
    for (int i = 0; i < 6; ++i) {
      const std::vector<Tensor> in{Tensor(random.floats({3, 5})).to(device),
                                   Tensor::from(std::vector<std::int64_t>{0, 1, 1}, {3}).to(device)};
      recorded ? step.run(in) : describe(in);
    }
    EXPECT_EQ(step.recorded(), recorded) << step.why_not();
    EXPECT_EQ(adam.steps(), 12);
    weights.push_back(net.parameters()[0].host_data().to_vector<float>());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// Two optimizers, each with masks of its own before it.
TEST_P(RecordedStepTest, AlsoWithTwoOptimizersAndDropout) {
  std::vector<std::vector<float>> outputs[2];
  for (const bool recorded : {false, true}) {
    Runtime runtime(devices(GetParam()));
    const Device device = runtime.devices().back();
    Linear first({.out_features = 64}), second({.out_features = 2});
    for (Linear* layer : {&first, &second}) layer->initialize(Xavier{}, {device});
    Sgd a(first.parameters(), {.lr = 0.1});
    Adam b(second.parameters(), {.lr = 0.1});
    const auto describe = [&](std::span<const Tensor> in) {
      std::vector<Tensor> masks;
      for (Optimizer* optimizer : {static_cast<Optimizer*>(&a), static_cast<Optimizer*>(&b)}) {
        masks.push_back(dropout(in[2], 0.5));
        cross_entropy(second(dropout(first(in[0]), 0.5)), in[1]).backward();
        optimizer->step();
        (optimizer == &a ? second : first).weight.zero_grad();
        (optimizer == &a ? second : first).bias.zero_grad();
      }
      return masks;
    };
    RecordedStep step(describe);
    Random random(4);
    const Tensor ones = make_tensor(std::vector<double>(64, 1.0), {64}, device);
    for (int i = 0; i < 6; ++i) {
      const std::vector<Tensor> in{Tensor(random.floats({3, 5})).to(device),
                                   Tensor::from(std::vector<std::int64_t>{0, 1, 1}, {3}).to(device), ones};
      for (const Tensor& mask : recorded ? step.run(in) : describe(in))
        outputs[recorded].push_back(mask.to_vector<float>());
    }
    EXPECT_EQ(step.recorded(), recorded) << step.why_not();
    outputs[recorded].push_back(first.weight.host_data().to_vector<float>());
    outputs[recorded].push_back(second.weight.host_data().to_vector<float>());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  for (std::size_t i = 0; i < outputs[0].size(); ++i) EXPECT_EQ(std::ranges::count(outputs[0], outputs[0][i]), 1) << i;
}

// A repetition describes nothing, and changes the weights all the same.
TEST(RecordedStep, WhatARepetitionChangesIsNoticedByAGraphFromBefore) {
  Runtime runtime(devices(1));
  const Device device = runtime.devices()[0];
  Linear net({.in_features = 5, .out_features = 2});
  net.initialize(Xavier{}, {device});
  Sgd sgd(net.parameters(), {.lr = 0.1});
  RecordedStep step([&](std::span<const Tensor> in) {
    sum(net(in[0])).backward();
    sgd.step();
    return std::vector<Tensor>{};
  });
  const std::vector<Tensor> in{Tensor(Random(1).floats({3, 5})).to(device)};
  for (int i = 0; i < 3; ++i) step.run(in);
  ASSERT_TRUE(step.recorded()) << step.why_not();
  Tensor x = as_leaf(Tensor(Random(2).floats({3, 5})).to(device));
  const Tensor loss = sum(net(x)), other = sum(in[0] * x);
  step.run(in);
  EXPECT_ERROR(loss.backward(), "linear: a tensor needed for its gradient was changed in place after forward");
  // It only read its input.
  other.backward();
  EXPECT_EQ(values(x.grad()), values(in[0]));
}

// A checkpoint that is read between repetitions is what they go on from.
TEST_P(RecordedStepTest, AlsoWhereStateIsLoadedBetween) {
  Training described(devices(GetParam()), {.adam = true}, false), recorded(devices(GetParam()), {.adam = true}, true);
  std::vector<std::pair<std::string, Tensor>> states[2];
  for (int step = 0; step < 7; ++step) {
    SCOPED_TRACE(step);
    EXPECT_EQ(recorded.step(), described.step());
    for (Training* training : {&described, &recorded}) {
      auto& state = states[training == &recorded];
      if (step == 1) state = training->optimizer().state_dict();
      if (step == 4) training->optimizer().load_state_dict(state, 2);
    }
  }
  EXPECT_TRUE(recorded.recording().recorded());
  EXPECT_EQ(recorded.state(), described.state());
}

TEST_P(RecordedStepTest, OutputsStayWhatTheyWere) {
  Runtime runtime(devices(GetParam()));
  const Device device = runtime.devices().back();
  RecordedStep step([](std::span<const Tensor> in) { return std::vector{in[0].to(DType::f64)}; });
  std::vector<Tensor> kept;
  for (int i = 0; i < 6; ++i) kept.push_back(step.run(std::vector<Tensor>{make_tensor({1.0 * i}, {1}, device)})[0]);
  EXPECT_TRUE(step.recorded());
  for (int i = 0; i < 6; ++i) EXPECT_EQ(kept[static_cast<std::size_t>(i)].item<double>(), i);
}

// A tensor that is replicated over a batch's devices is copied to them where it is used: that makes it no other input.
TEST(RecordedStep, AReplicatedInputIsCopiedAnewInEachStep) {
  Runtime runtime(devices(2));
  int described = 0;
  RecordedStep step([&](std::span<const Tensor> in) {
    ++described;
    return std::vector{in[0] * in[1]};
  });
  const Tensor x = split_and_load(Tensor::from<float>({1, 2, 3, 4}, {4, 1}), runtime.devices());
  for (int i = 0; i < 6; ++i) {
    const Tensor factor = replicated_tensor({make_tensor({1.0 * i}, {1}, runtime.devices()[0])}, x->at);
    const float f = static_cast<float>(i);
    EXPECT_EQ(step.run(std::vector{x, factor})[0].to_vector<float>(), (std::vector<float>{f, 2 * f, 3 * f, 4 * f}));
  }
  EXPECT_TRUE(step.recorded());
  EXPECT_EQ(described, 3);
}

TEST(RecordedStep, ASteadyLoopAllocatesNothing) {
  Training training(devices(2), {}, true);
  for (int step = 0; step < 5; ++step) training.step();
  const std::int64_t before = training.system_allocations();
  for (int step = 0; step < 5; ++step) training.step();
  EXPECT_TRUE(training.recording().recorded());
  EXPECT_EQ(training.system_allocations(), before);
}

// The memory of a recording is the allocator's again when it goes, also while its last repetition runs.
TEST(RecordedStep, GivesItsMemoryBack) {
  Runtime runtime(devices(1));
  const Device device = runtime.devices()[0];
  const Tensor x = make_tensor({1, 2, 3}, {3}, device);
  std::size_t reserved = 0;
  for (int round = 0; round < 4; ++round) {
    RecordedStep step([](std::span<const Tensor> in) { return std::vector{in[0].to(DType::f64).to(DType::bf16)}; });
    for (int i = 0; i < 5; ++i) step.run(std::vector{x});
    EXPECT_TRUE(step.recorded());
    const std::size_t now = runtime.memory(device).reserved_bytes;
    if (round > 1) {
      EXPECT_EQ(now, reserved);
    }
    reserved = now;
  }
}

TEST(RecordedStep, TakesItsInputsInBraces) {
  Runtime runtime(devices(1));
  const Device device = runtime.devices()[0];
  RecordedStep step([](std::span<const Tensor> in) { return std::vector{in[0] + in[1]}; });
  const Tensor x = full({1}, 2, {.device = device}), y = full({1}, 3, {.device = device});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step.run({x, y})[0].item(), 5);
}

// Options of the rule are numbers of the recorded tasks.
TEST_P(RecordedStepTest, ANewOptionIsRecordedAnew) {
  Training described(devices(GetParam()), {}, false), recorded(devices(GetParam()), {}, true);
  for (int step = 0; step < 9; ++step) {
    for (Training* training : {&described, &recorded}) {
      if (step == 4) training->optimizer().set_options(0, {{"momentum", 0.5}, {"weight_decay", 0.1}});
    }
    EXPECT_EQ(recorded.step(), described.step());
    EXPECT_EQ(recorded.recording().recorded(), step >= 2 && step != 4 && step != 5) << step;
  }
  EXPECT_EQ(recorded.state(), described.state());
}

}  // namespace
}  // namespace lockstep::testing
