
#include "lockstep/nn/state_dict.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

void build(Sequential& net) {
  net.append<Conv2d>(ConvLayerOptions{.out_channels = 3, .kernel_size = 3}).append<BatchNorm2d>().append<Flatten>();
  net.append<Linear>(LinearOptions{.out_features = 2});
}

class StateDictTest : public ::testing::Test {
 protected:
  StateDictTest() {
    build(net_);
    net_.initialize(Normal{}, {runtime_.devices()[0]}, {.seed = 1});
    net_(input());
  }
  Tensor input() { return Tensor(Random(1).floats({2, 1, 4, 4})).to(runtime_.devices()[0]); }
  // Changes one entry of the state, and gives what a model makes of it.
  void load(const std::function<void(StateDict&)>& change) {
    StateDict state = state_dict(net_);
    change(state);
    load_state_dict(net_, state);
  }

  Runtime runtime_{small_devices(2)};
  Sequential net_;
};

TEST_F(StateDictTest, HasParametersThenBuffersUnderPyTorchsNames) {
  std::vector<std::string> names;
  for (auto& [name, tensor] : state_dict(net_)) {
    names.push_back(name);
    EXPECT_TRUE(tensor.device().is_host());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias",
                                             "1.running_mean", "1.running_var", "1.num_batches_tracked"}));
}

// Into a model on other devices whose shapes are not known yet.
TEST_F(StateDictTest, RoundTrip) {
  Sequential other;
  build(other);
  EXPECT_ERROR(state_dict(other), "the shape of 0.weight is not known yet");
  other.initialize(Normal{}, runtime_.devices(), {.seed = 2});
  load_state_dict(other, state_dict(net_));
  EXPECT_EQ(other(input()).to_vector<float>(), net_(input()).to_vector<float>());
  for (const Parameter& p : other.parameters()) EXPECT_EQ(replicas(p)[0], replicas(p)[1]);
  EXPECT_EQ(other.named_buffers()[2].second.host_data().item<std::int64_t>(), 2);
}

TEST_F(StateDictTest, WhatDoesNotFitIsNamedAndNothingChanges) {
  std::vector<float> before = replicas(net_.parameters()[0])[0];
  auto spoil = [](StateDict& s) { s[0].second = Tensor::host({3, 1, 3, 3}); };
  auto both = [&](auto change) {
    return [=](StateDict& s) {
      spoil(s);
      change(s);
    };
  };
  EXPECT_ERROR(load(both([](StateDict& s) { s.pop_back(); })), "1.num_batches_tracked is missing");
  EXPECT_ERROR(load(both([](StateDict& s) { s.emplace_back("fc.bias", Tensor::host({1})); })),
               "fc.bias is not in the model");
  EXPECT_ERROR(load(both([](StateDict& s) { s.push_back(s[1]); })), "0.bias appears twice");
  EXPECT_ERROR(load(both([](StateDict& s) {
                 s[4].second = Tensor::host({2, 13});
               })),
               "3.weight has shape [2, 13], expected [2, 12]");
  EXPECT_ERROR(load(both([](StateDict& s) { s[8].second = Tensor::host({}); })),
               "1.num_batches_tracked is [] f32 on host, expected i64");
  EXPECT_EQ(replicas(net_.parameters()[0])[0], before);
  load(spoil);
  EXPECT_NE(replicas(net_.parameters()[0])[0], before);
}

// As in PyTorch: most published weights are bf16 or f16, and parameters are f32.
TEST_F(StateDictTest, FloatingValuesAreCastToTheParameter) {
  const std::vector<double> values{1.0 / 3, -2.5};
  const auto cast_by_hand = [&](auto type) {
    using T = decltype(type);
    std::vector<T> cast;
    for (double v : values) cast.push_back(static_cast<T>(static_cast<float>(v)));
    return cast;
  };
  const auto as_loaded = [&](const Tensor& bias, bool matching) {
    StateDict state = state_dict(net_);
    state[5].second = bias;
    matching ? (void)load_matching_state(net_, state) : load_state_dict(net_, state);
    return replicas(net_.named_parameters()[5].second)[0];
  };
  const auto expect = [&](auto type) {
    const auto cast = cast_by_hand(type);
    const std::vector<float> expected(cast.begin(), cast.end());
    for (bool matching : {false, true}) EXPECT_EQ(as_loaded(Tensor::from(cast, {2}), matching), expected);
  };
  expect(BFloat16{});
  expect(Float16{});
  const auto rounded = cast_by_hand(float{});
  EXPECT_EQ(as_loaded(Tensor::from(values, {2}), false), rounded);
  // And to wider parameters.
  net_.to(DType::f64);
  StateDict state = state_dict(net_);
  state[5].second = Tensor::from(rounded, {2});
  load_state_dict(net_, state);
  EXPECT_EQ(net_.named_parameters()[5].second.host_data().to_vector<double>(),
            std::vector<double>(rounded.begin(), rounded.end()));
}

TEST_F(StateDictTest, LoadsWhatMatchesAndListsTheRest) {
  StateDict state = state_dict(net_);
  const Tensor convolution = state[0].second;
  state[4].second = Tensor::host({5, 12});
  state.erase(state.begin() + 1);
  state.emplace_back("head.weight", Tensor::host({1}));
  Sequential other;
  build(other);
  other.initialize(Normal{}, {runtime_.devices()[0]}, {.seed = 2});
  other(input());
  const auto bias = replicas(other.named_parameters()[1].second)[0],
             last = replicas(other.named_parameters()[4].second)[0];
  const UnmatchedEntries unmatched = load_matching_state(other, state);
  EXPECT_EQ(unmatched.missing, std::vector<std::string>{"0.bias"});
  EXPECT_EQ(unmatched.unexpected, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(unmatched.different, std::vector<std::string>{"3.weight [5, 12] f32 on host, expected [2, 12] f32"});
  EXPECT_EQ(replicas(other.named_parameters()[0].second)[0], convolution.to_vector<float>());
  EXPECT_EQ(replicas(other.named_parameters()[1].second)[0], bias);
  EXPECT_EQ(replicas(other.named_parameters()[4].second)[0], last);
  EXPECT_ERROR(load_matching_state(other, {{"x", Tensor::host({1})}}), "none of 1 tensors fits the model");
}

}  // namespace
}  // namespace lockstep::testing
