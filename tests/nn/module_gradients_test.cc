// The gradients of whole modules, in f64, against central differences: of every parameter and every input.
#include <gtest/gtest.h>

#include "lockstep/nn/attention.h"
#include "lockstep/nn/feed_forward.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/transformer.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;
using In = std::vector<Tensor>;

class ModuleGradientsTest : public ::testing::Test {
 protected:
  // `run` takes inputs of these shapes to one tensor.
  void expect_gradients(Module& module, const std::vector<Shape>& shapes, const std::function<Tensor(const In&)>& run) {
    module.initialize(Normal(0.7), runtime_.devices(), {.seed = 5});
    module.to(DType::f64);
    const std::vector<Parameter> parameters = module.parameters();
    Random random(7);
    std::vector<Doubles> at;
    for (const Shape& shape : shapes) at.push_back(random.uniforms(shape.numel()));
    for (const Parameter& p : parameters) at.push_back(values(p.data(device_)));

    In inputs;
    const auto loss = [&] {
      inputs.clear();
      for (std::size_t i = 0; i < shapes.size(); ++i) inputs.push_back(as_leaf(tensor(at[i], shapes[i])));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        Parameter p = parameters[i];
        p.set_data(tensor(at[shapes.size() + i], p.shape()));
      }
      const Tensor y = run(inputs);
      Doubles weights;
      for (std::int64_t i = 0; i < y.numel(); ++i) weights.push_back(static_cast<double>(i * 7 % 11 - 5) / 5);
      return sum(y * tensor(weights, y.shape()));
    };
    loss().backward();
    std::vector<Doubles> gradients;
    for (const Tensor& x : inputs) gradients.push_back(values(x.grad()));
    for (const Parameter& p : parameters) gradients.push_back(values(p.gradient()));

    constexpr double kStep = 1e-5;
    for (std::size_t i = 0; i < at.size(); ++i) {
      Doubles found;
      for (double& x : at[i]) {
        const double middle = x;
        x = middle + kStep;
        const double above = loss().item<double>();
        x = middle - kStep;
        found.push_back((above - loss().item<double>()) / (2 * kStep));
        x = middle;
      }
      const bool input = i < shapes.size();
      EXPECT_LT(distance(gradients[i], found), 1e-7)
          << (input ? "input " + std::to_string(i) : parameters[i - shapes.size()].name());
    }
  }

  Tensor tensor(const Doubles& values, const Shape& shape) { return make_tensor(values, shape, device_, DType::f64); }

  Runtime runtime_{{.serial = true, .reference_backend = true}};
  Device device_ = runtime_.devices()[0];
};

TEST_F(ModuleGradientsTest, MultiheadAttention) {
  MultiheadAttention attention({.embed_dim = 4, .num_heads = 2});
  expect_gradients(attention, {{3, 2, 4}, {2, 2, 4}, {2, 2, 4}, {3, 2}}, [&](const In& in) {
    auto [y, weights] = attention(in[0], in[1], in[2], {.attn_mask = in[3]});
    return y + sum(square(weights));
  });
}

TEST_F(ModuleGradientsTest, CausalMultiheadAttention) {
  MultiheadAttention attention({.embed_dim = 4, .num_heads = 2, .batch_first = true});
  expect_gradients(attention, {{2, 3, 4}},
                   [&](const In& in) { return attention.attend(in[0], in[0], in[0], {.is_causal = true}); });
}

TEST_F(ModuleGradientsTest, FeedForward) {
  FeedForward layer({.dim = 4, .hidden_dim = 6});
  expect_gradients(layer, {{2, 3, 4}}, [&](const In& in) { return layer(in[0]); });
}

TEST_F(ModuleGradientsTest, TransformerEncoderLayer) {
  for (const bool norm_first : {false, true}) {
    TransformerEncoderLayer layer(
        {.d_model = 4, .nhead = 2, .dim_feedforward = 3, .dropout = 0, .activation = gelu, .norm_first = norm_first});
    expect_gradients(layer, {{3, 2, 4}}, [&](const In& in) { return layer(in[0]); });
  }
}

TEST_F(ModuleGradientsTest, LstmOfTwoLayersInBothDirections) {
  LSTM lstm({.input_size = 3, .hidden_size = 2, .num_layers = 2, .bidirectional = true});
  expect_gradients(lstm, {{3, 2, 3}, {4, 2, 2}, {4, 2, 2}}, [&](const In& in) {
    const LstmOutput all = lstm(in[0], {in[1], in[2]});
    return all.output + sum(square(all.state.h)) + sum(square(all.state.c));
  });
}

TEST_F(ModuleGradientsTest, GruOfTwoLayersInBothDirections) {
  GRU gru({.input_size = 3, .hidden_size = 2, .num_layers = 2, .batch_first = true, .bidirectional = true});
  expect_gradients(gru, {{2, 3, 3}, {4, 2, 2}}, [&](const In& in) {
    const GruOutput all = gru(in[0], in[1]);
    return all.output + sum(square(all.h));
  });
}

TEST_F(ModuleGradientsTest, Normalization) {
  RMSNorm rms({.normalized_shape = {3, 2}});
  expect_gradients(rms, {{2, 3, 2}}, [&](const In& in) { return rms(in[0]); });
  LayerNorm layer({.normalized_shape = {4}});
  expect_gradients(layer, {{2, 3, 4}}, [&](const In& in) { return layer(in[0]); });
  GroupNorm group({.num_groups = 2, .num_channels = 4});
  expect_gradients(group, {{2, 4, 2}}, [&](const In& in) { return group(in[0]); });
}

}  // namespace
}  // namespace lockstep::testing
