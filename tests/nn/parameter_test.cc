
#include <array>
#include <cmath>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/parameter.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

TEST(Parameter, AnUnknownShapeIsSettledByTheFirstForwardPass) {
  Runtime runtime(small_devices(2));
  const auto& devices = runtime.devices();
  Sequential net;
  net.append<Linear>(LinearOptions{.out_features = 3});
  Parameter weight = net.parameters()[0];
  EXPECT_EQ(weight.shape(), (Shape{3, 0}));
  EXPECT_FALSE(weight.initialized());
  EXPECT_ERROR(Parameter({.shape = {2}}).data(devices[0]), "only modules that make() or add() registered");
  net.initialize(Normal{}, devices);
  EXPECT_ERROR(weight.data(devices[0]),
               "parameter 0.weight is not initialized on cpu:0 yet: its shape [3, 0] is settled");
  net(Tensor::host({2, 5}).to(devices[1]));
  EXPECT_EQ(weight.shape(), (Shape{3, 5}));
  EXPECT_EQ(weight.data(devices[0]).shape(), (Shape{3, 5}));
}

TEST(Parameter, ADeviceWithoutReplicaIsAnErrorThatSaysWhereTheyAre) {
  Runtime runtime(small_devices(3));
  const auto& devices = runtime.devices();
  Linear net({.in_features = 2, .out_features = 3});
  net.initialize(Normal{}, {devices[0], devices[1]});
  EXPECT_ERROR(net(Tensor::host({1, 2}).to(devices[2])), " is not initialized on cpu:2: it lives on [cpu:0, cpu:1]");
  // A batch that the user forgot to cut.
  EXPECT_ERROR(net(Tensor::host({1, 2})),
               "module: Linear's input is [1, 2] f32 on host, a whole tensor, and the model is on [cpu:0, cpu:1]: cut "
               "batches with loader.on(net) or split_and_load()");
  EXPECT_ERROR(net.weight.data(Device()), "parameter weight is not initialized on host: it lives on [cpu:0, cpu:1]");
}

// The bits depend on the seed and the name, not on devices or on when the shape became known.
TEST(Parameter, ReplicasAreEqual) {
  for (Initializer initializer : {Initializer(Normal{1}), Initializer(Uniform{}), Initializer(Xavier{}),
                                  Initializer(Kaiming{}), Initializer(Constant{2})}) {
    Runtime one(small_devices(1)), three(small_devices(3));
    Linear known({.in_features = 4, .out_features = 3}), deferred({.out_features = 3});
    known.initialize(initializer, one.devices(), {.seed = 11});
    deferred.initialize(initializer, three.devices(), {.seed = 11});
    deferred(Tensor::host({1, 4}).to(three.devices()[2]));
    std::vector<float> expected = replicas(known.weight)[0];
    EXPECT_EQ(replicas(deferred.weight), std::vector(3, expected));
    EXPECT_EQ(replicas(deferred.bias)[1], std::vector<float>(3, 0));
  }
}

TEST(Parameter, NamesAndSeedsGiveDifferentStarts) {
  Runtime runtime(small_devices(1));
  Sequential net, other;
  for (Sequential* s : {&net, &other}) {
    for (int i = 0; i < 2; ++i) s->append<Linear>(LinearOptions{.in_features = 4, .out_features = 4});
  }
  net.initialize(Normal{}, runtime.devices(), {.seed = 1});
  other.initialize(Normal{}, runtime.devices(), {.seed = 2});
  EXPECT_NE(replicas(net.parameters()[0]), replicas(net.parameters()[2]));
  EXPECT_NE(replicas(net.parameters()[0]), replicas(other.parameters()[0]));
}

TEST(Parameter, InitializersKeepTheirFormulas) {
  Runtime runtime(small_devices(1));
  auto start = [&](Initializer initializer) {
    Parameter p(ParameterOptions{.shape = {50, 10, 2, 2}});
    p.initialize("w", runtime.devices(), initializer, 1);
    return replicas(p)[0];
  };
  auto stddev = [](const std::vector<float>& v) {
    return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0) / static_cast<double>(v.size()));
  };
  // 2000 numbers: their standard deviation is within 10% of the true one (six sigma).
  EXPECT_NEAR(stddev(start(Normal{0.01})), 0.01, 0.001);
  EXPECT_NEAR(stddev(start(Kaiming{})), std::sqrt(2.0 / 40), 0.1 * std::sqrt(2.0 / 40));
  double bound = std::sqrt(6.0 / (40 + 200));
  std::vector<float> xavier = start(Xavier{});
  EXPECT_LE(*std::ranges::max_element(xavier), bound);
  EXPECT_GE(*std::ranges::min_element(xavier), -bound);
  EXPECT_NEAR(stddev(xavier), bound / std::sqrt(3.0), 0.1 * bound);
  EXPECT_ERROR(Xavier{}(Array::host({3}), {}), "xavier: the parameter is [3], expected at least 2 axes");
}

TEST(Parameter, InitializingAgainHasToBeForced) {
  Runtime runtime(small_devices(2));
  const auto& devices = runtime.devices();
  Linear net({.out_features = 3});
  net.initialize(Normal{}, {devices[0]});
  EXPECT_ERROR(net.initialize(Normal{}, devices), "parameter weight is initialized already; set force_reinit");
  net(Tensor::host({1, 4}).to(devices[0]));
  auto before = replicas(net.weight);
  net.initialize(Normal{}, devices, {.seed = 1, .force_reinit = true});
  // The shape is known by now: the new replicas are there at once.
  auto after = replicas(net.weight);
  EXPECT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0], after[1]);
  EXPECT_NE(after[0], before[0]);
}

struct ScaledNet : Module {
  Linear& first = make<Linear>("first", {.in_features = 2, .out_features = 2});
  Parameter scale = add_parameter("scale", {.shape = {2}});
};

// The weight could be initialized, the scale could not.
TEST(Parameter, InitializeChangesAllOfAModuleOrNothing) {
  Runtime runtime(small_devices(1));
  ScaledNet net;
  EXPECT_ERROR(net.initialize(Xavier{}, runtime.devices()),
               "initialize: parameter scale: xavier: the parameter is [2], expected at least 2 axes (out, in, ...)");
  for (const Parameter& p : net.parameters()) EXPECT_FALSE(p.initialized());
  net.initialize(Normal{}, runtime.devices());
  const auto before = net.scale.host_data().to_vector<float>();
  EXPECT_ERROR(net.initialize(Xavier{}, runtime.devices(), {.seed = 1, .force_reinit = true}),
               "parameter scale: xavier");
  EXPECT_EQ(net.scale.host_data().to_vector<float>(), before);
}

// The first pass may go on when the caller has mended the cause.
TEST(Parameter, AShapeThatCannotBeSettledStaysUnknown) {
  Runtime runtime(small_devices(1));
  Parameter p(ParameterOptions{.shape = {0}});
  p.initialize("scale", runtime.devices(), Xavier{}, 0);
  for (int i = 0; i < 2; ++i) EXPECT_ERROR(p.settle_shape({3}), "initialize: parameter scale: xavier");
  EXPECT_EQ(p.shape(), Shape{0});
  p.set_data(Tensor::from<float>({1, 2}, {2}));
  EXPECT_EQ(p.host_data().to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Parameter, MovesAllOfAModuleOrNothing) {
  Runtime runtime({.cpu_devices = 2, .memory_limit = 1 << 20});
  const Device first = runtime.devices()[0], second = runtime.devices()[1];
  Sequential net;
  net.append(Linear({.in_features = 128, .out_features = 128}))
      .append(Linear({.in_features = 128, .out_features = 384}));
  net.initialize(Normal{}, {first});
  {
    // The first layer's 64 KiB fit, the second layer's do not.
    const Tensor rest = zeros({208 << 10}, {.device = second});
    EXPECT_ERROR(net.to({second}), "cpu:1: out of memory");
    for (const Parameter& p : net.parameters()) EXPECT_EQ(p.devices(), std::vector<Device>{first});
    EXPECT_ERROR(net.initialize(Constant{1}, {second}, {.force_reinit = true}), "cpu:1: out of memory");
    for (const Parameter& p : net.parameters()) EXPECT_EQ(p.devices(), std::vector<Device>{first});
  }
  net.to({second});
  for (const Parameter& p : net.parameters()) EXPECT_EQ(p.devices(), std::vector<Device>{second});
}

TEST(Parameter, SettlingAKnownShapeDifferentlyIsAnError) {
  Parameter p(ParameterOptions{.shape = {3, 0}});
  EXPECT_ERROR(p.settle_shape({4, 5}), "the input needs shape [4, 5], expected [3, 0] (0: any)");
  EXPECT_ERROR(p.settle_shape({3}), "the input needs shape [3]");
  p.settle_shape({3, 5});
  p.settle_shape({3, 5});
  EXPECT_ERROR(p.settle_shape({3, 6}), "expected [3, 5]");
}

TEST(Parameter, SetDataReachesAllReplicas) {
  Runtime runtime(small_devices(3));
  Parameter p(ParameterOptions{.shape = {0, 2}});
  Tensor value = Random(1).floats({3, 2});
  EXPECT_ERROR(p.set_data(value), "is not initialized");
  p.initialize("w", runtime.devices(), Normal{}, 0);
  EXPECT_ERROR(p.set_data(Tensor::host({3, 4})), "parameter w: set to [3, 4], expected [0, 2] (0: any)");
  EXPECT_ERROR(p.set_data(Tensor::host({3, 2}, DType::f64)), "expected f32");
  p.set_data(value);
  EXPECT_EQ(replicas(p), std::vector(3, value.to_vector<float>()));
  EXPECT_EQ(p.host_data().to_vector<float>(), value.to_vector<float>());
  EXPECT_ERROR(p.set_data(Tensor::host({2, 2})), "parameter w: set to [2, 2], expected [3, 2]");
}

TEST(Parameter, GradientsOfAllReplicasComeToTheParameter) {
  Runtime runtime(small_devices(2));
  const auto& devices = runtime.devices();
  Linear net({.in_features = 2, .out_features = 1, .bias = false});
  net.initialize(Constant{1}, devices);
  const Tensor x = make_batch(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}), {2, 1}, devices);
  const Tensor target = make_batch(Tensor::host({3, 1}), {2, 1}, devices);
  mse_loss(net(x), target).backward();
  // d/dw of the mean of (w.x)^2 over three samples: 2 x (w.x) / 3.
  std::vector<float> expected{2.0F * (1 * 3 + 3 * 7 + 5 * 11) / 3, 2.0F * (2 * 3 + 4 * 7 + 6 * 11) / 3};
  for (Device device : devices) {
    EXPECT_EQ(net.weight.gradient(device).device(), device);
    EXPECT_LT(distance(values(net.weight.gradient(device)), {expected[0], expected[1]}), 1e-6);
  }
  net.weight.zero_grad();
  EXPECT_FALSE(net.weight.gradient().defined());
}

// Gradients may come in the layout of activations; parameters are plain.
TEST(Parameter, GradientsArePlain) {
  Runtime runtime(small_devices(1));
  Device device = runtime.devices()[0];
  Parameter p(ParameterOptions{.shape = {1, 16, 2, 3}});
  p.initialize("offset", runtime.devices(), Constant{1}, 0);
  for (Layout layout : {Layout::channels_last, Layout::blocked16}) {
    Tensor x = Tensor(Random(1).floats({1, 16, 2, 3})).to(device).to(layout);
    p.zero_grad();
    sum(x * x * (x + p)).backward();
    EXPECT_EQ(p.gradient().layout(), Layout::plain);
    EXPECT_EQ(values(p.gradient()), values(x * x));
  }
}

// A parameter behaves as a plain leaf does.
TEST(Parameter, ItsTensorHasItsGradient) {
  Runtime runtime(small_devices(2));
  Parameter p(ParameterOptions{.shape = {2}});
  p.initialize("w", runtime.devices(), Constant{1}, 0);
  Tensor w = p.tensor();
  EXPECT_FALSE(w.grad().defined());
  sum(square(w)).backward();
  EXPECT_EQ(values(w.grad()), (std::vector<double>{2, 2}));
  EXPECT_EQ(values(p.gradient()), values(w.grad()));
  w.zero_grad();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_FALSE(p.gradient().defined());
}

// It would be a leaf of its own, and the parameter would stop to learn.
TEST(Parameter, ItsTensorStaysALeaf) {
  Runtime runtime(small_devices(1));
  Parameter p(ParameterOptions{.shape = {2}});
  p.initialize("w", runtime.devices(), Constant{1}, 0);
  Tensor w = p.tensor();
  EXPECT_ERROR(w.set_requires_grad(false), "requires_grad: parameter w is set by Parameter::set_trainable()");
  EXPECT_ERROR(w.set_requires_grad(true), "set by Parameter::set_trainable()");
  sum(square(w)).backward();
  EXPECT_EQ(values(p.gradient()), (std::vector<double>{2, 2}));
  // Without a history it is any tensor.
  EXPECT_TRUE(w.detach().set_requires_grad(true).requires_grad());
}

TEST(Parameter, AGradientOfItsTensorCountsOnce) {
  Runtime runtime(small_devices(2));
  Parameter p(ParameterOptions{.shape = {1}});
  p.initialize("w", runtime.devices(), Constant{1}, 0);
  const Tensor y = square(p);
  backward(std::array{y}, std::array{full_like(y, 3)});
  EXPECT_EQ(values(p.gradient()), std::vector<double>{6});
}

TEST(Parameter, ACopyInPlaceIsSeenOnAllDevices) {
  Runtime runtime(small_devices(2));
  Linear net({.in_features = 3, .out_features = 1, .bias = false});
  net.initialize(Constant{1}, runtime.devices());
  {
    NoGradGuard no_grad;
    net.weight.tensor().copy_from(Tensor::from<float>({5, 6, 7}, {1, 3}));
  }
  EXPECT_EQ(values(net(make_batch(Tensor::from<float>({1, 1, 1, 1, 1, 1}, {2, 3}), {1, 1}, runtime.devices()))),
            (std::vector<double>{18, 18}));
}

TEST(Parameter, AHistoryMayOutliveItsParameter) {
  Runtime runtime(small_devices(1));
  Tensor loss;
  {
    Linear net({.in_features = 2, .out_features = 1});
    net.initialize(Normal{}, runtime.devices());
    loss = sum(net(Tensor::host({1, 2}).to(runtime.devices()[0])));
  }
  loss.backward();
  runtime.synchronize();
}

}  // namespace
}  // namespace lockstep::testing
