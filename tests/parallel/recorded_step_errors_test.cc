// Steps that cannot be recorded, tasks that fail in a repetition, and invalid inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/random.h"
#include "lockstep/parallel/recorded_step.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

RuntimeOptions one_device() { return {.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1, .seed = 9}; }

void expect_refused(std::string_view why, const std::function<void(const Tensor&)>& act) {
  Runtime runtime(one_device());
  const Device device = runtime.devices()[0];
  int described = 0;
  RecordedStep step([&](std::span<const Tensor> in) {
    ++described;
    act(in[0]);
    return std::vector{in[0].to(DType::f64)};
  });
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(step.run(std::vector<Tensor>{make_tensor({1.0 * i, 2}, {2}, device)})[0].to_vector<double>()[0], i);
  }
  EXPECT_FALSE(step.recorded());
  EXPECT_EQ(step.why_not(), why);
  EXPECT_EQ(described, 5);
}

TEST(RecordedStep, RefusesWhatCannotBeRepeated) {
  expect_refused("it waits for data that it has computed", [](const Tensor& x) { x.to(DType::f64).wait(); });
  expect_refused("it copies from or to the host's memory",
                 [](const Tensor& x) { Tensor::from(std::vector<float>{1}, {1}).to(x.device()); });
  expect_refused("the size of masked_select's result depends on data",
                 [](const Tensor& x) { masked_select(x, gt(x, 0)); });
  Linear net({.out_features = 2});
  expect_refused("it leaves gradients that no optimizer's step() has used", [&](const Tensor& x) {
    if (!net.parameters()[0].initialized()) net.initialize(Xavier{}, {x.device()});
    for (const Parameter& p : net.parameters()) p.zero_grad();
    sum(net(x.reshape({1, 2}))).backward();
  });
  expect_refused("fill computes in host memory", [](const Tensor&) { ones({2}); });
  // A GPU does not read it at all.
  if (Runtime(one_device()).devices()[0].host_visible()) {
    expect_refused("it reads the host's memory", [constant = ones({2})](const Tensor& x) { x* constant; });
  }
  expect_refused("randn draws random numbers", [](const Tensor&) { randn({2}); });
  expect_refused("it draws its own random keys", [](const Tensor& x) {
    ops::uniform_(ops::empty_like(x->array()), state_of(x.device(), "test").random()->next(0), 0, 1);
  });
}

// Python: net.shift = value.
TEST(RecordedStep, AnotherBufferIsRecordedAnew) {
  Runtime runtime(one_device());
  const Device device = runtime.devices()[0];
  Module net;
  const ModuleTree tree(net);
  tree.set_buffer("shift", Parameter({.shape = {1}, .default_initializer = Constant(1), .trainable = false}));
  net.to(device);
  const Parameter shift = net.buffer("shift");
  const auto assign = [&](const Tensor& value) {
    tree.set_buffer("shift", ModuleTree::successor(ModuleTree::own_handle(shift), value));
  };
  RecordedStep step([&](std::span<const Tensor> in) { return std::vector{in[0] + shift.tensor()}; });
  const auto run = [&] {
    return step.run(std::vector<Tensor>{make_tensor({10}, {1}, device)})[0].to_vector<float>()[0];
  };
  for (const float value : {1.0F, 5.0F, 7.0F}) {
    assign(ones({1}) * value);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(run(), 10 + value);
    EXPECT_TRUE(step.recorded()) << step.why_not();
  }
  Module other;
  const ModuleTree parts(other);
  parts.set_buffer("shift", Parameter({.shape = {2}, .default_initializer = Constant(1), .trainable = false}));
  expect_refused("it gives a buffer other memory", [&](const Tensor& x) {
    const Parameter buffer = ModuleTree::own_handle(other.buffer("shift"));
    if (!buffer.initialized()) other.to(x.device());
    buffer.tensor();
    parts.set_buffer("shift", ModuleTree::successor(buffer, x));
  });
}

TEST(RecordedStep, OneThreadAtATime) {
  Runtime runtime(one_device());
  const Tensor x = make_tensor({1, 2}, {2}, runtime.devices()[0]);
  RecordedStep* running = nullptr;
  RecordedStep step([&](std::span<const Tensor> in) {
    std::thread([&] { EXPECT_ERROR(running->run({x}), "recorded step: another thread is using it"); }).join();
    return std::vector{in[0] * 2};
  });
  running = &step;
  EXPECT_EQ(step.run({x})[0].to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(RecordedStep, ATaskThatFailsIsToldOfAtTheReadAndTheNextStepIsWhole) {
  Runtime runtime(one_device());
  const Device device = runtime.devices()[0];
  // Results put together from parts are fresh in each repetition, although they are in the same memory.
  RecordedStep step([](std::span<const Tensor> in) {
    const Tensor loss = cross_entropy(in[0], in[1]);
    return std::vector{concatenate(std::vector{loss.reshape({1}), loss.reshape({1})})};
  });
  const Tensor logits = make_tensor({0, 0, 0, 0}, {2, 2}, device);
  const auto run = [&](std::int64_t label) {
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, label}, {2}).to(device);
    return step.run(std::vector{logits, labels})[0];
  };
  for (int i = 0; i < 3; ++i) run(1);
  ASSERT_TRUE(step.recorded());
  // A stream loses what is in flight behind a failure as well.
  EXPECT_THROW(run(2).wait(), TaskError);
  for (float loss : run(1).to_vector<float>()) EXPECT_NEAR(loss, std::log(2.0), 1e-6);
  EXPECT_THROW(run(3).wait(), TaskError);
}

TEST(RecordedStep, ChecksItsInputs) {
  Runtime runtime(one_device());
  RecordedStep step([](std::span<const Tensor> in) { return std::vector<Tensor>(in.begin(), in.end()); });
  EXPECT_ERROR(step.run({}), "recorded step: no inputs");
  Tensor leaf = make_tensor({1}, {1}, runtime.devices()[0]);
  leaf.set_requires_grad(true);
  EXPECT_ERROR(step.run(std::vector{leaf}),
               "recorded step: an input has a history or requires a gradient, expected data: detach() it");
  EXPECT_ERROR(step.run(std::vector{Tensor::host({2})}),
               "recorded step: an input is [2] f32 on host, expected it on a device");
}

}  // namespace
}  // namespace lockstep::testing
