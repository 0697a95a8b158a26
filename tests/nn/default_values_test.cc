// Models that nobody initialized: where they are, and the values that they begin with.
#include <algorithm>
#include <cmath>
#include <thread>

#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/warning.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_of.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/runtime/default_runtime.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct TwoLayers : Module {
  Linear& a = make<Linear>("a", 4, 3);
  Linear& b = make<Linear>("b", 3, 3);
  Tensor forward(const Tensor& x) override { return b(relu(a(x))); }
};

std::vector<float> values_of(const Parameter& p) { return p.host_data().to_vector<float>(); }

double largest(const Parameter& p) {
  double found = 0;
  for (const float x : values_of(p)) found = std::max(found, std::abs(double{x}));
  return found;
}

TEST(DefaultValues, ArePyTorchs) {
  Runtime runtime(small_devices(1));
  // Uniform numbers fill their range: the largest of some hundred lies near its end.
  const auto expect_bound = [](const Parameter& p, double bound) {
    EXPECT_LE(largest(p), bound * (1 + 1e-6)) << p.name();
    EXPECT_GT(largest(p), 0.9 * bound) << p.name();
  };
  Linear linear(100, 200);
  expect_bound(linear.weight, 0.1);
  expect_bound(linear.bias, 0.1);
  Conv2d conv(4, 100, {5, 2});
  expect_bound(conv.weight, 1 / std::sqrt(40.0));
  expect_bound(conv.bias, 1 / std::sqrt(40.0));
  ConvTranspose2d up(4, 100, 2);  // PyTorch takes axis 1 of its weight [in, out, ...] as the inputs, too
  expect_bound(up.weight, 1 / std::sqrt(400.0));
  expect_bound(up.bias, 1 / std::sqrt(400.0));
  LSTM lstm(10, 100);
  expect_bound(lstm.parameter("weight_ih_l0"), 0.1);
  expect_bound(lstm.parameter("bias_hh_l0"), 0.1);
  MultiheadAttention attention(100, 2);
  expect_bound(attention.in_proj_weight, std::sqrt(6.0 / 400));
  EXPECT_EQ(largest(attention.in_proj_bias), 0);
  expect_bound(attention.out_proj.weight, 0.1);
  EXPECT_EQ(largest(attention.out_proj.bias), 0);
  Embedding table(100, 50, {.padding_idx = 1});
  double squares = 0;
  for (const float x : values_of(table.weight)) squares += double{x} * x;
  EXPECT_NEAR(squares / 4950, 1, 0.1);
  EXPECT_EQ(values_of(table.weight)[50], 0);
  BatchNorm2d norm(3);
  EXPECT_EQ(values_of(norm.weight), std::vector<float>(3, 1));
  EXPECT_EQ(values_of(norm.bias), std::vector<float>(3, 0));
  EXPECT_EQ(values_of(norm.running_var), std::vector<float>(3, 1));
}

TEST(DefaultValues, OfTheFirstModelAreThoseOfInitialize) {
  std::vector<float> expected;
  {
    Runtime runtime({.cpu_devices = 1, .seed = 5});
    TwoLayers net;
    net.initialize(KaimingUniform({.a = std::sqrt(5.0)}));
    expected = values_of(net.b.weight);
  }
  Runtime runtime({.cpu_devices = 1, .seed = 5});
  TwoLayers first, second;
  EXPECT_EQ(values_of(first.b.weight), expected);
  // Two critics of one class differ, and so do layers of one shape.
  EXPECT_NE(values_of(second.b.weight), expected);
  EXPECT_NE(values_of(first.b.bias), values_of(second.b.bias));
  EXPECT_EQ(first.b.weight.name(), "b.weight");
}

TEST(DefaultValues, FollowFromTheSeedWhenTheModelIsMade) {
  Runtime runtime(small_devices(1));
  manual_seed(3);
  TwoLayers first;
  TwoLayers second;
  manual_seed(3);
  TwoLayers again;
  manual_seed(4);
  const Linear other(4, 3);
  // In any order of first uses.
  const std::vector<float> of_second = values_of(second.a.weight), of_first = values_of(first.a.weight);
  EXPECT_EQ(values_of(again.a.weight), of_first);
  EXPECT_NE(of_second, of_first);
  manual_seed(3);
  EXPECT_EQ(values_of(again.b.weight), values_of(first.b.weight));
  EXPECT_NE(values_of(other.weight), of_first);
}

// A layer that takes another's place begins with values of its own, and a model whose parts move one by one with those
// of one that moves at once.
TEST(DefaultValues, OfANewLastLayerAreNew) {
  Runtime runtime(small_devices(1));
  const auto run = [&](bool by_parts) {
    manual_seed(3);
    Sequential net(Linear(4, 3), Linear(3, 2));
    if (by_parts) net.module("1").to(runtime.devices());
    net.to(runtime.devices());
    std::vector<std::vector<float>> all{values_of(net["0.weight"]), values_of(net["1.weight"])};
    net.replace("1", Linear(3, 2));
    all.push_back(values_of(net["1.weight"]));
    return all;
  };
  const auto values = run(false);
  EXPECT_NE(values[1], values[2]);
  EXPECT_EQ(run(true), values);
}

// Programs that train models of their own in threads, such as a sweep over learning rates.
TEST(DefaultValues, DependOnNoOtherThread) {
  Runtime runtime(small_devices(1));
  std::vector<std::string> warnings;
  const WarningHandler old = set_warning_handler([&](const Warning& w) { warnings.push_back(w.message); });
  const auto in_threads = [](bool seeded) {
    std::vector<std::vector<float>> values(2);
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        if (seeded) manual_seed(7 + i);
        TwoLayers net, second;
        values[i] = values_of(i == 0 ? second.b.weight : net.b.weight);
        const std::vector<float> drawn = rand({3}).to_vector<float>();
        if (seeded) values[i].insert(values[i].end(), drawn.begin(), drawn.end());
      });
    }
    threads.clear();
    return values;
  };
  manual_seed(5);
  const auto seeded = in_threads(true);
  EXPECT_TRUE(warnings.empty());
  manual_seed(6);
  EXPECT_EQ(in_threads(true), seeded);
  manual_seed(6);
  const auto unseeded = in_threads(false);
  EXPECT_NE(unseeded, seeded);
  // Two models may be equal, so it is said.
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("expected manual_seed() in the thread"), std::string::npos) << warnings[0];
  manual_seed(6);
  EXPECT_EQ(in_threads(false), unseeded);
  // That of a thread is not that of the program.
  manual_seed(6);
  const std::vector<float> here = rand({3}).to_vector<float>();
  manual_seed(6);
  std::jthread([] { manual_seed(8); }).join();
  EXPECT_EQ(rand({3}).to_vector<float>(), here);
  set_warning_handler(old);
}

TEST(DefaultValues, FollowTheOrderOfTheModels) {
  const auto run = [](int devices) {
    Runtime runtime(small_devices(devices));
    TwoLayers a, b;
    const NoGradGuard no_grad;
    b(ones({2, 4}));
    a(ones({2, 4}));
    return std::pair(values_of(a.a.weight), values_of(b.a.weight));
  };
  const auto one = run(1), three = run(3);
  EXPECT_EQ(one, three);
  EXPECT_NE(one.first, one.second);
}

// A layer that is used alone first does not take another name or place from its model.
TEST(DefaultValues, ALayerPlacesItsWholeModel) {
  Runtime runtime(small_devices(2));
  TwoLayers net;
  net.to({runtime.devices()[1]});
  const Tensor y = net.b(ones({1, 3}));
  EXPECT_EQ(y.device(), runtime.devices()[1]);
  EXPECT_EQ(net.b.weight.name(), "b.weight");
  EXPECT_EQ(net.a.weight.devices(), (std::vector<Device>{runtime.devices()[1]}));
  EXPECT_EQ(net.devices(), (std::vector<Device>{runtime.devices()[1]}));
}

TEST(DefaultValues, UnknownShapesWaitForTheFirstInput) {
  Runtime runtime(small_devices(1));
  Sequential net(Linear({.out_features = 3}), BatchNorm1d(), Linear({.out_features = 2}));
  EXPECT_EQ(net.devices(), runtime.devices());
  EXPECT_ERROR(net["0.bias"].data(runtime.devices()[0]), "its values follow from the shape of 0.weight, [3, 0]");
  net(ones({2, 25}));
  EXPECT_GT(largest(net["0.bias"]), 0);
  EXPECT_LE(largest(net["0.bias"]), 0.2);
  Sequential known(Linear(25, 3), BatchNorm1d(3), Linear(3, 2));
  known.initialize(Normal{1}, {.seed = 3});
  net.initialize(Normal{1}, {.seed = 3, .force_reinit = true});
  EXPECT_EQ(values_of(known["0.weight"]), values_of(net["0.weight"]));
}

TEST(DefaultValues, InitializeComesBeforeTheFirstUse) {
  Runtime runtime(small_devices(2));
  TwoLayers net;
  net.to({runtime.devices()[1]});
  net.initialize(Constant{2});
  EXPECT_EQ(net.devices(), (std::vector<Device>{runtime.devices()[1]}));
  EXPECT_EQ(values_of(net.a.weight)[0], 2);
  EXPECT_FALSE(net.a.weight.by_default());
  TwoLayers used;
  EXPECT_TRUE((used.devices(), used.a.weight.by_default()));
  values_of(used.a.weight);
  EXPECT_ERROR(used.initialize(Constant{2}), "parameter a.weight has its default values already");
}

TEST(DefaultValues, LoadedWeightsDrawNothing) {
  Runtime runtime(small_devices(1));
  TwoLayers a, b, c;
  for (TwoLayers* net : {&a, &b}) net->to(runtime.devices());
  load_state_dict(b, state_dict(a));
  EXPECT_EQ(values_of(b.a.weight), values_of(a.a.weight));
  EXPECT_FALSE(b.a.weight.by_default());
  EXPECT_NE(values_of(c.a.weight), values_of(a.a.weight));
}

// torch.nn.Transformer gives the weights of all its layers the values of xavier_uniform_.
TEST(DefaultValues, ATransformerBeginsAsPyTorchs) {
  Runtime runtime(small_devices(1));
  Transformer net({.d_model = 16, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 64});
  const double bound = std::sqrt(6. / (16 + 64));
  for (const char* name : {"encoder.layers.0.linear2.weight", "decoder.layers.0.linear2.weight"}) {
    EXPECT_GT(largest(net[name]), 0.9 * bound);  // a Linear's bound is 1/8
    EXPECT_LE(largest(net[name]), bound);
  }
  EXPECT_LE(largest(net["encoder.layers.0.linear2.bias"]), 0.125);
}

TEST(DefaultValues, AParameterWithoutAnInitializerIsAnError) {
  struct Own : Module {
    const Parameter scale = add_parameter("scale", {.shape = {2}});
    Tensor forward(const Tensor& x) override { return x * scale; }
  };
  Runtime runtime(small_devices(1));
  Own net;
  EXPECT_ERROR(net(ones({2})), "parameter scale has no initial values: call initialize() of its model");
  net.initialize(Constant{3});
  EXPECT_EQ(net(ones({2})).to_vector<float>(), (std::vector<float>{3, 3}));
}

TEST(DefaultValues, TwoThreadsMayMakeTheFirstPass) {
  Runtime runtime(small_devices(1));
  Sequential net(Linear({.out_features = 3}), ReLU(), Linear({.out_features = 2}));
  std::vector<float> results[2];
  {
    std::vector<std::jthread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        const NoGradGuard no_grad;
        result = net(ones({2, 5})).to_vector<float>();
      });
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Places, AHostTensorGoesWhereTheModelIs) {
  Runtime runtime(small_devices(2));
  const auto& devices = runtime.devices();
  TwoLayers net;
  net.to({devices[1]});
  EXPECT_EQ(net(ones({2, 4})).device(), devices[1]);
  TwoLayers both;
  EXPECT_ERROR(both(ones({2, 4})),
               "a whole tensor, and the model is on [cpu:0, cpu:1]: cut batches with loader.on(net)");
  const NoGradGuard no_grad;
  EXPECT_EQ(both(ones({2, 4})).device(), devices[0]);
}

struct Two : ModuleOf<Two> {
  Linear& a = make<Linear>("a", 4, 3);
  Linear& b = make<Linear>("b", 2, 3);
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& y, double scale = 1) { return {a(x) * scale, b(y)}; }
};

struct OneToTwo : ModuleOf<OneToTwo> {
  Linear& a = make<Linear>("a", 4, 3);
  std::pair<Tensor, Tensor> forward(Tensor x) { return {a(x), x}; }
};

TEST(ModuleOfTest, CallsTheModelsOwnForward) {
  Runtime runtime(small_devices(1));
  Two net;
  const auto [y, z] = net(ones({2, 4}), ones({2, 2}));
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(z.device(), runtime.devices()[0]);
  EXPECT_EQ(net(ones({2, 4}), ones({2, 2}), 0.0).first.to_vector<float>(), std::vector<float>(6, 0));
  OneToTwo one;
  EXPECT_EQ(one(ones({2, 4})).second.shape(), (Shape{2, 4}));
  EXPECT_EQ(net.str().substr(0, 4), "Two(");
}

TEST(Replace, TakesTheSamePlaceForTheSameClass) {
  Runtime runtime(small_devices(2));
  TwoLayers net;
  net.to({runtime.devices()[1]});
  net(ones({1, 4}));
  Linear& b = net.b;
  EXPECT_EQ(&net.replace("b", Linear(3, 7)), &b);
  EXPECT_EQ(net(ones({1, 4})).shape(), (Shape{1, 7}));
  EXPECT_EQ(b.weight.name(), "b.weight");
  EXPECT_EQ(net["b.weight"], b.weight);
  EXPECT_EQ(net.devices(), (std::vector<Device>{runtime.devices()[1]}));
  EXPECT_ERROR(net.replace("b", ReLU()),
               "replace: 'b' is Linear(in_features=3, out_features=7, bias=True), which "
               "TwoLayers keeps by its class, so ReLU() cannot take its place");
  EXPECT_ERROR(net.replace("c", ReLU()), "module: no module 'c', expected one of: a, b");
  EXPECT_ERROR(net.module<Conv2d>("a"), "module: 'a' is Linear(");
  EXPECT_EQ(&net.module("a"), &net.a);
}

TEST(Replace, ASlotAndASequentialTakeAnyClass) {
  struct Headed : Module {
    Sequential& body = make<Sequential>("body", Linear(4, 3), ReLU());
    ModuleSlot head = make_slot<Linear>("head", 3, 2);
    Tensor forward(const Tensor& x) override { return head(body(x)); }
  };
  Runtime runtime(small_devices(1));
  Headed net;
  net.replace("head", Sequential(Linear(3, 5), Tanh(), Linear(5, 6)));
  net.replace("body.1", Tanh());
  EXPECT_EQ(net(ones({1, 4})).shape(), (Shape{1, 6}));
  EXPECT_EQ(net["head.2.weight"].name(), "head.2.weight");
  EXPECT_EQ(net.module("body.1").kind(), "Tanh");
}

// Nobody would train what is assigned.
template <typename T>
constexpr bool kFixed = !std::is_assignable_v<T, Parameter>;
static_assert(kFixed<decltype((std::declval<Linear&>().weight))> && kFixed<decltype((std::declval<PReLU&>().weight))> &&
              kFixed<decltype((std::declval<LSTMCell&>().weight_hh))> &&
              kFixed<decltype((std::declval<InstanceNorm2d&>().bias))>);

TEST(Share, OneParameterHasTwoNames) {
  struct Tied : Module {
    Embedding& table = make<Embedding>("table", 5, 3);
    Linear& head = make<Linear>("head", LinearOptions{.out_features = 5, .bias = false, .weight = table.weight});
    Tensor forward(const Tensor& x) override { return head(table(x)); }
  };
  Runtime runtime(small_devices(1));
  Tied net;
  EXPECT_EQ(net.parameters().size(), 1U);
  EXPECT_EQ(names(net.named_parameters()), (std::vector<std::string>{"table.weight", "head.weight"}));
  EXPECT_EQ(state_dict(net).size(), 2U);
  sum(net(Tensor::from(std::vector<std::int64_t>{1}, {1}))).backward();
  // d/dw of sum_j w_1 w_j: the sum of all rows, and w_1 once in each row.
  const auto w = values_of(net.table.weight), g = net.table.weight.gradient().to_vector<float>();
  EXPECT_FLOAT_EQ(g[0], w[3]);
  EXPECT_ERROR(Linear({.in_features = 4, .out_features = 5, .weight = net.table.weight}),
               "linear: shares a weight [5, 3], expected [5, 4]");
  static_assert(!std::is_assignable_v<decltype((net.head.weight)), const Parameter&>);
  auto state = state_dict(net);
  state[1].second = zeros({5, 3});
  EXPECT_ERROR(load_state_dict(net, state), "head.weight and table.weight are one parameter, expected equal values");
}

TEST(Sizes, ByPositionAreThoseOfTheOptions) {
  EXPECT_EQ(Linear(3, 4, {.bias = false}).str(), Linear({.in_features = 3, .out_features = 4, .bias = false}).str());
  EXPECT_EQ(Conv2d(3, 4, {1, 7}, {.padding = {0, 3}}).str(),
            Conv2d({.in_channels = 3, .out_channels = 4, .kernel_size = {1, 7}, .padding = {0, 3}}).str());
  EXPECT_EQ(MaxPool2d(3).str(), MaxPool2d({.kernel_size = 3}).str());
  EXPECT_EQ(MaxPool2d(3, 2, 1).str(), MaxPool2d({.kernel_size = 3, .stride = 2, .padding = 1}).str());
  EXPECT_EQ(LayerNorm(8).str(), LayerNorm({.normalized_shape = {8}}).str());
  EXPECT_EQ(LayerNorm(Shape{8, 2}).str(), LayerNorm({.normalized_shape = {8, 2}}).str());
  EXPECT_EQ(GRU(3, 4, {.num_layers = 2}).str(), GRU({.input_size = 3, .hidden_size = 4, .num_layers = 2}).str());
  EXPECT_ERROR(Linear(3, 4, {.out_features = 5}), "linear: out_features is given by position and, differently, in the");
  EXPECT_ERROR(Linear(0, 4), "linear: in_features is 0, expected at least 1 by position");
  // PyTorch's MaxPool2d((3, 2)) is one kernel, not a kernel and a stride.
  static_assert(!std::is_constructible_v<Linear, int>);
}

TEST(DefaultValues, ComeAgain) {
  Runtime runtime(small_devices(2));
  Sequential net(Linear(4, 3), BatchNorm1d(3));
  net.to(runtime.devices());
  const Parameter weight = net["0.weight"], mean = net.buffer("1.running_mean");
  const std::vector<float> first = values_of(weight);
  weight.set_data(zeros({3, 4}));
  weight.reset();
  EXPECT_EQ(values_of(weight), first);
  weight.reset(Constant{2}, "constant");
  weight.reset();
  EXPECT_EQ(values_of(weight), first);
  EXPECT_EQ(weight.reset_text(), "");
  Linear second(4, 3);  // whose number is another
  second.to(runtime.devices());
  const std::vector<float> other = values_of(second.weight);
  EXPECT_NE(other, first);
  second.weight.set_data(zeros({3, 4}));
  EXPECT_FALSE(second.weight.by_default());
  second.weight.reset();
  EXPECT_EQ(values_of(second.weight), other);
  EXPECT_TRUE(second.weight.by_default());
  mean.set_data(ones({3}));
  mean.reset();
  EXPECT_EQ(values_of(mean), std::vector<float>(3));
}

TEST(DefaultValues, ParametersOfNoModuleHaveTheirOwn) {
  const auto draw = [] {
    Runtime runtime(small_devices(2));
    std::vector<std::vector<float>> drawn;
    for (int i = 0; i < 2; ++i) {
      const Parameter p({.shape = {8}, .default_initializer = Normal{1}});
      p.place_alone(runtime.devices());
      drawn.push_back(values_of(p));
    }
    return drawn;
  };
  const auto drawn = draw();
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_GT(*std::ranges::max_element(drawn[0]), 0);
  EXPECT_EQ(draw(), drawn);
}

}  // namespace
}  // namespace lockstep::testing
