
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <thread>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/runtime/random_state.h"
#include "tests/nn/nn_testing.h"
#include "tests/task_names.h"

namespace lockstep::testing {
namespace {

using Names = std::vector<std::string>;

struct Net : Module {
  Linear hidden{{.out_features = 3}}, out{{.in_features = 3, .out_features = 2, .bias = false}};
  Net() {
    add("hidden", hidden);
    add("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
};

TEST(Module, NamesArePathsInTheOrderOfRegistration) {
  Net net;
  EXPECT_EQ(names(net.named_parameters()), (Names{"hidden.weight", "hidden.bias", "out.weight"}));
  auto outer = std::make_shared<Sequential>();
  outer->append<BatchNorm2d>().append("body", std::make_shared<Net>());
  EXPECT_EQ(names(outer->named_parameters()),
            (Names{"0.weight", "0.bias", "body.hidden.weight", "body.hidden.bias", "body.out.weight"}));
  EXPECT_EQ(names(outer->named_buffers()), (Names{"0.running_mean", "0.running_var", "0.num_batches_tracked"}));
  Names modules;
  for (auto& [name, module] : outer->named_modules()) modules.push_back(name);
  EXPECT_EQ(modules, (Names{"", "0", "body", "body.hidden", "body.out"}));
}

TEST(Module, ResidualBlocksHavePyTorchsNames) {
  Residual plain({.channels = 4}), projecting({.channels = 4, .stride = 2, .project = true});
  EXPECT_EQ(names(plain.named_parameters()), (Names{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                                    "bn1.weight", "bn1.bias", "bn2.weight", "bn2.bias"}));
  EXPECT_EQ(names(projecting.named_parameters())[5], "conv3.bias");
}

TEST(EvalGuard, HoldsEvaluationModeUntilTheLastOneEnds) {
  Net net;
  net.hidden.eval();
  const auto modes = [&] { return std::array{net.training(), net.hidden.training(), net.out.training()}; };
  auto first = std::make_unique<EvalGuard>(net), second = std::make_unique<EvalGuard>(net);
  EXPECT_EQ(modes(), (std::array{false, false, false}));
  // Guards of two threads need not end in the reverse order.
  first.reset();
  EXPECT_EQ(modes(), (std::array{false, false, false}));
  const auto inner = std::make_unique<EvalGuard>(net.out);
  second.reset();
  EXPECT_EQ(modes(), (std::array{true, false, false}));
}

TEST(EvalGuard, ExcludesOtherChangesOfTheMode) {
  Net net;
  {
    const EvalGuard guard(net.hidden);
    EXPECT_ERROR(net.train(), "module: train() of Linear while an EvalGuard holds it in evaluation mode");
    EXPECT_ERROR(net.hidden.eval(), "module: eval() of Linear while an EvalGuard holds it in evaluation mode");
    net.out.eval();
    EXPECT_TRUE(net.training());
  }
  EXPECT_TRUE(net.hidden.training());
  EXPECT_FALSE(net.out.training());
}

// Under the thread sanitizer, the first passes of several threads race neither for the mode nor for the shapes.
TEST(EvalGuard, SeveralThreadsMayCallOneModel) {
  Runtime runtime(small_devices(1));
  Sequential net;
  net.append(Linear({.out_features = 4})).append<BatchNorm1d>().append<Dropout>(0.5);
  net.append(Linear({.out_features = 2}));
  net.initialize(Xavier{}, runtime.devices());
  const Tensor x = Random(1).floats({3, 5});
  std::vector<std::vector<double>> outputs(4);
  std::vector<std::thread> threads;
  for (auto& output : outputs) {
    threads.emplace_back([&net, &output, x = x.to(runtime.devices()[0])] {
      for (int i = 0; i < 20; ++i) {
        const NoGradGuard no_grad;
        const EvalGuard guard(net);
        output = values(net(x));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(net.training());
  EXPECT_EQ(net.buffer("1.num_batches_tracked").host_data().item<std::int64_t>(), 0);
  net.eval();
  EXPECT_EQ(outputs, std::vector(4, values(net(x.to(runtime.devices()[0])))));
}

// Its names are two, its gradient and its update one.
TEST(Module, SharedParametersAreListedOnce) {
  Runtime runtime(small_devices(1));
  Sequential net;
  auto shared = std::make_shared<Linear>(LinearOptions{.in_features = 2, .out_features = 2, .bias = false});
  net.append(shared).append(shared);
  net.initialize(Constant{1}, runtime.devices());
  EXPECT_EQ(names(net.named_parameters()), (Names{"0.weight", "1.weight"}));
  EXPECT_EQ(net.parameters().size(), 1U);
  EXPECT_EQ(net.parameter_count(), 4);
  // The derivative of the sum of x W' W' with respect to W_ij, where W = 1: 2 x_j from the first use, x_0 + x_1 from
  // the second.
  sum(net(Tensor::from<float>({1, 2}, {1, 2}).to(runtime.devices()[0]))).backward();
  EXPECT_EQ(values(shared->weight.gradient()), (std::vector<double>{5, 7, 5, 7}));
}

struct Named : Module {
  void child(std::string name) { add(std::move(name), std::make_shared<ReLU>()); }
  void parameter(std::string name) { add_parameter(std::move(name), {.shape = {1}}); }
  Tensor forward(const Tensor& x) override { return x; }
};

TEST(Module, NamesAreUniqueAndHaveNoDots) {
  Named module;
  module.child("a");
  EXPECT_ERROR(module.child("a"), "name 'a' is taken");
  EXPECT_ERROR(module.parameter("a"), "name 'a'");
  EXPECT_ERROR(module.parameter("b.c"), "name 'b.c', expected a name without dots");
  EXPECT_ERROR(module.parameter(""), "name ''");
}

TEST(Module, ContainsNeitherItselfNorAModuleThatContainsIt) {
  const auto outer = std::make_shared<Sequential>(), middle = std::make_shared<Sequential>(),
             inner = std::make_shared<Sequential>();
  EXPECT_ERROR(outer->append(outer),
               "module: child '0' is the module itself, expected a module that does not contain its parent");
  outer->append("middle", middle);
  middle->append("inner", inner);
  EXPECT_ERROR(inner->append("back", outer), "module: child 'back' contains the module, as 'middle.inner', expected");
  EXPECT_ERROR(middle->append("back", outer), "module: child 'back' contains the module, as 'middle', expected");
  // A module may be the child of several.
  outer->append("inner", inner);
  EXPECT_EQ(outer->named_modules().size(), 4U);
}

TEST(Module, TrainingModeReachesAllChildren) {
  Sequential net;
  auto inner = std::make_shared<Sequential>();
  inner->append<Dropout>();
  net.append(inner);
  EXPECT_TRUE((*inner)[0].training());
  net.eval();
  EXPECT_FALSE((*inner)[0].training());
  net.train();
  EXPECT_TRUE((*inner)[0].training());
}

TEST(Module, CountsParametersOnceTheirShapesAreKnown) {
  Runtime runtime(small_devices(1));
  Net net;
  net.initialize(Normal{}, runtime.devices());
  net(Tensor::host({1, 5}).to(runtime.devices()[0]));
  EXPECT_EQ(net.parameter_count(), 5 * 3 + 3 + 3 * 2);
}

// Steps of sequences, for example.
TEST(Module, LinearTakesAnyAxesInFront) {
  Runtime runtime(small_devices(1));
  Linear linear({.out_features = 2});
  linear.initialize(Constant{1}, runtime.devices());
  const Tensor y = linear(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 1, 3}).to(runtime.devices()[0]));
  EXPECT_EQ(y.shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{6, 6, 15, 15}));
}

TEST(Module, LayersNameWhatTheyCannotTake) {
  Runtime runtime(small_devices(1));
  Device device = runtime.devices()[0];
  Linear linear({.in_features = 4, .out_features = 2});
  Conv2d conv({.in_channels = 4, .out_channels = 2});
  BatchNorm2d norm({.channels = 4});
  for (Module* m : std::initializer_list<Module*>{&linear, &conv, &norm}) m->initialize(Normal{}, runtime.devices());
  EXPECT_ERROR(linear(Tensor::host({2, 3}).to(device)), "linear: input has 3 features, weight expects 4");
  EXPECT_ERROR(linear(Tensor::host({}).to(device)), "expected at least one axis (.., features)");
  EXPECT_ERROR(conv(Tensor::host({1, 3, 2, 2}).to(device)), "conv2d: input has 3 channels, weight expects 4");
  EXPECT_EQ(conv(Tensor::host({4, 2, 2}).to(device)).shape(), (Shape{2, 2, 2}));  // one image
  EXPECT_ERROR(conv(Tensor::host({2, 2}).to(device)), "expected 4 axes (N, C, H, W)");
  EXPECT_ERROR(norm(Tensor::host({1, 3, 2, 2}).to(device)), "batch_norm: input has 3 channels, weight expects 4");
  EXPECT_ERROR(Conv2d({.in_channels = 3, .out_channels = 4, .groups = 2}), "2 groups do not divide 3 and 4 channels");
  EXPECT_ERROR(Dropout(1.5), "dropout: probability 1.5, expected 0 to 1");
}

// Two shards, one device or two: the same masks; another shard, step or seed: others.
TEST(Module, DropoutMasksDoNotDependOnDevices) {
  auto mask = [](int devices, std::uint64_t seed, std::uint64_t step) {
    RuntimeOptions options = small_devices(devices);
    options.seed = seed;
    Runtime runtime(options);
    runtime.random().set_step(step);
    Sequential net;
    net.append<Dropout>(0.5).append<Dropout>(0.25);
    std::vector<float> ones(400, 1.0F);
    const Tensor y = net(make_batch(Tensor::from(ones, {2, 200}), {1, 1}, runtime.devices()));
    return std::vector{y->parts[0].to_vector<float>(), y->parts[1].to_vector<float>()};
  };
  auto expected = mask(1, 3, 7);
  EXPECT_EQ(mask(2, 3, 7), expected);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(mask(1, 4, 7), expected);
  EXPECT_NE(mask(1, 3, 8), expected);
  // Half of it dropped, then a quarter of the rest.
  auto kept = std::ranges::count_if(expected[0], [](float v) { return v != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / 200, 0.375, 0.12);
}

TEST(Module, DropoutDoesNothingInEvaluation) {
  Runtime runtime(small_devices(1));
  Sequential net;
  net.append<Dropout>(0.5);
  net.eval();
  Tensor x = Tensor(Random(1).floats({4, 5})).to(runtime.devices()[0]);
  EXPECT_EQ(net(x).to_vector<float>(), x.to_vector<float>());
}

// A module of users' own, with a synchronized batch norm inside and two inputs.
struct Masked : Module {
  BatchNorm2d norm{{.synchronized = true}};
  Masked() { add("norm", norm); }
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& mask) { return {norm(x * mask), norm(x) * 2}; }
};

TEST(Module, MayTakeAndReturnSeveralTensors) {
  Runtime runtime(small_devices(2));
  const auto run = [&](const std::vector<Device>& devices) {
    Masked net;
    net.initialize(Normal{}, devices);
    const auto [a, b] = net.forward(make_batch(Random(1).floats({3, 3, 2, 2}), {1, 2}, devices),
                                    make_batch(Random(2).floats({3, 1, 2, 2}), {1, 2}, devices));
    sum(square(a) * b).backward();
    EXPECT_EQ(net.norm.num_batches_tracked.host_data().item<std::int64_t>(), 2);
    return std::tuple(a.to_vector<float>(), b.to_vector<float>(), net.norm.weight.gradient().to_vector<float>());
  };
  EXPECT_EQ(run({runtime.devices()[0]}), run(runtime.devices()));
  Masked net;
  EXPECT_ERROR(static_cast<Module&>(net)(Tensor::host({1})),
               "module: Masked's input is [1] f32 on host, a whole tensor, and the model is on [cpu:0, cpu:1]");
  const NoGradGuard no_grad;
  EXPECT_ERROR(static_cast<Module&>(net)(Tensor::host({1})),
               "module: Masked has no forward() of one tensor: call its own forward()");
}

TEST(Module, CanBeCastToF64) {
  Runtime runtime(small_devices(2));
  Sequential net;
  net.append(Linear({.out_features = 2})).append(LayerNorm({.normalized_shape = {2}})).append(BatchNorm2d());
  net.initialize(Normal{1}, runtime.devices());
  const std::vector<double> before = values(net["1.weight"].data(runtime.devices()[1]));
  EXPECT_ERROR(net.to(DType::bf16), "to: bf16 parameters, expected f32 or f64");
  net.to(DType::f64);
  EXPECT_EQ(net["1.weight"].data(runtime.devices()[1]).dtype(), DType::f64);
  EXPECT_EQ(values(net["1.weight"].data(runtime.devices()[1])), before);
  EXPECT_EQ(net.buffer("2.num_batches_tracked").dtype(), DType::i64);
  // A shape that is not known yet gets the type, too.
  const Tensor y = net.at<Linear>(0)(make_tensor({1, 2, 3}, {1, 3}, runtime.devices()[0], DType::f64));
  EXPECT_EQ(y.dtype(), DType::f64);
  net.to(DType::f32);
  EXPECT_EQ(net["0.weight"].tensor().dtype(), DType::f32);
}

TEST(Module, SequentialRunsSubclassesOfItsLayersAsTheyAre) {
  struct Doubled : BatchNorm2d {
    Tensor forward(const Tensor& x) override { return BatchNorm2d::forward(x) * 2; }
  };
  struct Shifted : ReLU {
    Tensor forward(const Tensor& x) override { return ReLU::forward(x) + 1; }
  };
  Runtime runtime(small_devices(1));
  const auto output = [&](Sequential net) {
    net.initialize(Normal{}, runtime.devices());
    return values(net(Tensor(Random(1).floats({2, 3, 2, 2})).to(runtime.devices()[0])));
  };
  const auto plain = output(std::move(Sequential().append<BatchNorm2d>().append<ReLU>()));
  const auto expect = [&](const std::vector<double>& found, double factor, double shift) {
    std::vector<double> expected = plain;
    for (double& v : expected) v = factor * v + shift;
    EXPECT_LT(distance(found, expected), 1e-6);
  };
  expect(output(std::move(Sequential().append<Doubled>().append<Shifted>())), 2, 1);
  expect(output(std::move(Sequential().append<BatchNorm2d>().append<Shifted>())), 1, 1);
  expect(output(std::move(Sequential().append<Doubled>().append<ReLU>())), 2, 0);
}

TEST(Module, SequentialPoolsBeforeTheReluWithTheSameBits) {
  // Sequential does not know what this class computes.
  struct Hidden : ReLU {};
  Runtime runtime(small_devices(1));
  std::vector<float> numbers = Random(1).floats({2, 3, 9, 7}).to_vector<float>();
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {-1, -1, -0.F, 0, -infinity, 2, 2, nan};
  for (std::size_t i = 0; i < numbers.size(); i += 3) numbers[i] = special[i / 3 % std::size(special)];
  using Bits = std::vector<std::uint32_t>;
  const auto bits = [](const Tensor& x) {
    Bits all;
    for (float v : x.to_vector<float>()) all.push_back(std::bit_cast<std::uint32_t>(v));
    return all;
  };
  // The names of the forward pass's tasks in order, the result, and the gradient of x.
  const auto run = [&](Sequential net, const Pool2dOptions& options) {
    net.append<MaxPool2d>(options);
    Tensor x = Tensor::from(numbers, {2, 3, 9, 7}).to(runtime.devices()[0]);
    x.set_requires_grad(true);
    Tensor y;
    const Names tasks = task_names(runtime.engine(), [&] { y = net(x); });
    sum(y * Tensor(Random(2).floats(y.shape())).to(runtime.devices()[0])).backward();
    return std::tuple(tasks, bits(y), bits(x.grad()));
  };
  for (const Pool2dOptions& options : {Pool2dOptions{}, Pool2dOptions{{3, 3}, {2, 2}, {1, 1}}}) {
    const auto [tasks, y, dx] = run(std::move(Sequential().append<ReLU>()), options);
    const auto [expected_tasks, expected_y, expected_dx] = run(std::move(Sequential().append<Hidden>()), options);
    EXPECT_EQ(tasks, (Names{"max pool", "relu"}));
    EXPECT_EQ(expected_tasks, (Names{"relu", "max pool"}));
    EXPECT_EQ(y, expected_y);
    EXPECT_EQ(dx, expected_dx);
  }
}

}  // namespace
}  // namespace lockstep::testing
