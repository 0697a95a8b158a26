// Attention, recurrent layers, and others: behavior that the comparison with PyTorch
// (tests/models/layers_parity_test.cc) does not cover.
#include <cmath>

#include "lockstep/autograd/functions.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/upsample.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;

class SequenceLayersTest : public ::testing::Test {
 protected:
  template <typename M>
  M& on_devices(M& module) {
    module.initialize(Normal{0.5}, runtime_.devices());
    return module;
  }
  Tensor random(const Shape& shape, std::uint64_t seed = 1) {
    return Tensor(Random(seed).floats(shape)).to(runtime_.devices()[0]);
  }
  Tensor tensor(const Doubles& values, const Shape& shape) { return make_tensor(values, shape, runtime_.devices()[0]); }

  Runtime runtime_{small_devices(2)};
};

TEST_F(SequenceLayersTest, AttentionWithEqualScoresIsAMean) {
  const Tensor zero = tensor({0, 0, 0}, {3, 1}), v = tensor({1, 2, 6}, {3, 1});
  EXPECT_LT(distance(values(scaled_dot_product_attention(zero, zero, v)), {3, 3, 3}), 1e-6);
  EXPECT_LT(distance(values(scaled_dot_product_attention(zero, zero, v, {.is_causal = true})), {1, 1.5, 3}), 1e-6);
  const Tensor mask = Tensor::from(std::vector<std::uint8_t>{1, 0, 1}, {3});
  EXPECT_LT(distance(values(scaled_dot_product_attention(zero, zero, v, {.attn_mask = mask})), {3.5, 3.5, 3.5}), 1e-6);
  // A key has to pass both.
  const Doubles both = values(scaled_dot_product_attention(zero, zero, v, {.attn_mask = mask, .is_causal = true}));
  EXPECT_LT(distance(both, {1, 1, 3.5}), 1e-6);
  const Tensor nothing = Tensor::from(std::vector<std::uint8_t>{0, 0, 0}, {3});
  EXPECT_TRUE(std::isnan(values(scaled_dot_product_attention(zero, zero, v, {.attn_mask = nothing}))[0]));
  // Twice the score is the square of the weight's ratio.
  const Tensor one = tensor({1, 2}, {2, 1});
  const Doubles w = values(attention_weights(one, one, {.scale = 3}));
  EXPECT_NEAR(w[1] / w[0], std::exp(3.0), 1e-3);
}

TEST_F(SequenceLayersTest, AttentionRefusesWhatDoesNotFit) {
  const Tensor q = random({2, 3, 4}), k = random({2, 5, 4});
  EXPECT_ERROR(attention_weights(q, random({2, 5, 3})), "attention: query [2, 3, 4] f32 on cpu:0 and key [2, 5, 3]");
  EXPECT_ERROR(scaled_dot_product_attention(q, k, q), "attention: key [2, 5, 4] f32 on cpu:0 and value [2, 3, 4]");
  EXPECT_ERROR(attention_weights(q, k, {.attn_mask = random({4, 2, 3, 5})}),
               "expected one that broadcasts to [2, 3, 5]");
  const Tensor numbers = Tensor::from(std::vector<std::int64_t>(15, 1), {3, 5}).to(q.device());
  EXPECT_ERROR(attention_weights(q, k, {.attn_mask = numbers}),
               "attention: mask is [3, 5] i64 on cpu:0, expected bool or floating");
  EXPECT_ERROR(attention_weights(q, k, {.dropout_p = 1.5}), "attention: dropout 1.5, expected 0 to 1");
  // The samples among the keys.
  const Tensor batch = make_batch(q, {1, 1}, runtime_.devices());
  EXPECT_ERROR(attention_weights(transpose(batch, 0, 1), transpose(batch, 0, 1), {.is_causal = true}), "gather()");
}

TEST_F(SequenceLayersTest, MultiheadAttentionHasPyTorchsParametersAndRules) {
  MultiheadAttention attention({.embed_dim = 4, .num_heads = 2, .batch_first = true});
  EXPECT_EQ(names(on_devices(attention).named_parameters()),
            (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  const Tensor x = random({2, 3, 4});
  // With the weights, it is composed of other operations than in one pass.
  EXPECT_LT(distance(values(attention(x)), values(attention(x, x, x).first)), 1e-6);
  EXPECT_EQ(attention(x, x, x).second.shape(), (Shape{2, 3, 3}));
  // Floating and u8 masks say the same.
  const Tensor hidden = Tensor::from(std::vector<bool>{false, false, true, false, true, true}, {2, 3});
  const double inf = INFINITY;
  const Tensor added = tensor({0, 0, -inf, 0, -inf, -inf}, {2, 3});
  EXPECT_EQ(values(attention.attend(x, x, x, {.key_padding_mask = hidden})),
            values(attention.attend(x, x, x, {.key_padding_mask = added})));
  EXPECT_EQ(values(attention(x, x, x, {.key_padding_mask = hidden}).second.select(0, 1).select(1, 1)), Doubles(3, 0));
  // Without a batch.
  const Tensor one = x.select(0, 1);
  EXPECT_EQ(values(attention.attend(one, one, one, {.key_padding_mask = hidden.select(0, 1)})),
            values(attention.attend(x, x, x, {.key_padding_mask = hidden}).select(0, 1)));
  EXPECT_EQ(attention(one, one, one).second.shape(), (Shape{3, 3}));
  EXPECT_ERROR(attention(random({4})), "multihead attention: query is [4] f32 on cpu:0, expected 3 axes (N, L, 4)");
  EXPECT_ERROR(attention(x, x, x, {.key_padding_mask = x}),
               "key_padding_mask is [2, 3, 4] f32 on cpu:0, expected [2, 3]");
  EXPECT_ERROR(attention(x, x, x, {.attn_mask = hidden}),
               "attn_mask is [2, 3] bool on host, expected [3, 3] or [4, 3, 3]");
  EXPECT_ERROR(attention(x, x, random({2, 2, 4})), "value is [2, 2, 4] f32 on cpu:0, expected 3 rows for each of 2");
  EXPECT_ERROR(MultiheadAttention({.embed_dim = 4, .num_heads = 3}), "3 heads do not divide 4 features");
}

// Dropout is there in training alone.
TEST_F(SequenceLayersTest, EvaluationDropsNothing) {
  TransformerEncoderLayer layer({.d_model = 4, .nhead = 2, .dim_feedforward = 8, .dropout = 0.5});
  LSTM lstm({.input_size = 4, .hidden_size = 4, .num_layers = 2, .dropout = 0.5});
  on_devices(layer), on_devices(lstm);
  const Tensor x = random({3, 2, 4});
  EXPECT_NE(values(layer(x)), values(layer(x)));
  EXPECT_NE(values(lstm(x).output), values(lstm(x).output));
  layer.eval(), lstm.eval();
  EXPECT_EQ(values(layer(x)), values(layer(x)));
  EXPECT_EQ(values(lstm(x).output), values(lstm(x).output));
  EXPECT_ERROR(TransformerEncoderLayer({.d_model = 4, .activation = nullptr}),
               "transformer encoder layer: no activation");
}

// Two calls, the second from the state of the first, are one call.
TEST_F(SequenceLayersTest, StatesGoOn) {
  LSTM lstm({.hidden_size = 3, .num_layers = 2});
  GRU gru({.hidden_size = 3, .batch_first = true});
  on_devices(lstm), on_devices(gru);
  const Tensor x = random({4, 2, 5});
  const LstmOutput all = lstm(x), first = lstm(x.narrow(0, 0, 3)), second = lstm(x.narrow(0, 3, 1), first.state);
  EXPECT_EQ(values(second.output), values(all.output.narrow(0, 3, 1)));
  EXPECT_EQ(values(second.state.c), values(all.state.c));
  EXPECT_EQ(all.state.h.shape(), (Shape{2, 2, 3}));
  const Tensor y = transpose(x, 0, 1);
  const GruOutput whole = gru(y), part = gru(y.narrow(1, 2, 2), gru(y.narrow(1, 0, 2)).h);
  EXPECT_EQ(values(part.output), values(whole.output.narrow(1, 2, 2)));
  EXPECT_EQ(values(part.h), values(whole.h));
}

TEST_F(SequenceLayersTest, RecurrentNetsHavePyTorchsParametersAndRules) {
  LSTM lstm({.hidden_size = 3, .num_layers = 2, .bidirectional = true});
  const auto all = names(lstm.named_parameters());
  EXPECT_EQ(all.size(), 16U);
  EXPECT_EQ(all[0], "weight_ih_l0");
  EXPECT_EQ(all[4], "weight_ih_l0_reverse");
  EXPECT_EQ(all[15], "bias_hh_l1_reverse");
  on_devices(lstm)(random({2, 1, 5}));
  EXPECT_EQ(lstm.named_parameters()[0].second.shape(), (Shape{12, 5}));  // inferred
  EXPECT_EQ(lstm.named_parameters()[8].second.shape(), (Shape{12, 6}));
  EXPECT_ERROR(lstm(random({5})), "lstm: input is [5] f32 on cpu:0, expected 3 axes (T, N, features)");
  EXPECT_ERROR(lstm(random({2, 1, 5}), {random({1, 1, 3}), {}}),
               "lstm: state is [1, 1, 3] f32 on cpu:0, expected [4, 1, 3]");
  EXPECT_ERROR(lstm(random({2, 1, 4})), "lstm: input is [2, 1, 4]");
  EXPECT_ERROR(GRU({.input_size = 2}), "gru: 2 to 0 features in 1 layers, expected at least 1 of each");
  EXPECT_ERROR(GRU({.hidden_size = 2, .dropout = -1}), "gru: dropout -1, expected 0 to 1");
}

TEST_F(SequenceLayersTest, ConvolutionsInferTheirInput) {
  Conv1d conv({.out_channels = 4, .kernel_size = 3, .groups = 2});
  ConvTranspose2d up({.out_channels = 4, .kernel_size = 2, .stride = 2, .groups = 2});
  EXPECT_EQ(on_devices(conv)(random({1, 2, 5})).shape(), (Shape{1, 4, 3}));
  EXPECT_EQ(conv.weight.shape(), (Shape{4, 1, 3}));
  EXPECT_EQ(on_devices(up)(random({1, 6, 3, 5})).shape(), (Shape{1, 4, 6, 10}));
  EXPECT_EQ(up.weight.shape(), (Shape{6, 2, 2, 2}));
  EXPECT_ERROR(conv(random({2})), "conv1d: input is [2] f32 on cpu:0, expected 3 axes (N, C, L)");
  EXPECT_ERROR(up(random({1, 4, 3, 5})), "conv_transpose2d: input has 4 channels, weight expects 6");
  EXPECT_ERROR(conv_transpose2d(random({1, 2, 3, 3}), random({2, 1, 2, 2}), {}, {.output_padding = {0, 1}}),
               "conv_transpose2d: output padding 1, expected at least 0 and below the stride, 1");
  EXPECT_ERROR(Conv1d({.out_channels = 3, .groups = 2}), "conv1d: 2 groups do not divide 0 and 3 channels");
}

TEST_F(SequenceLayersTest, ShapesOfImages) {
  const Tensor x = random({2, 6, 5, 7});
  EXPECT_EQ(AdaptiveAvgPool2d(3)(x).shape(), (Shape{2, 6, 3, 3}));
  EXPECT_EQ(AdaptiveAvgPool2d({-1, 2})(x).shape(), (Shape{2, 6, 5, 2}));
  EXPECT_EQ(values(AdaptiveAvgPool2d({5, 7})(x)), values(x));
  EXPECT_EQ(Upsample({.scale_factor = 2})(x).shape(), (Shape{2, 6, 10, 14}));
  EXPECT_EQ(Flatten()(x).shape(), (Shape{2, 210}));
  EXPECT_EQ(Flatten(0, 1)(x).shape(), (Shape{12, 5, 7}));
  EXPECT_EQ(Unflatten(1, {2, -1})(x).shape(), (Shape{2, 2, 3, 5, 7}));
  EXPECT_EQ(unbind(x, 1).size(), 6U);
  EXPECT_ERROR(unflatten(x, 1, {4, 2}), "unflatten: axis 1 of [2, 6, 5, 7] does not fit the sizes [4, 2]");
  EXPECT_ERROR(interpolate(x, {}), "interpolate: expected a size or a scale factor, found none");
  EXPECT_ERROR(interpolate(x, {.size = {{2, 2}}, .align_corners = true}),
               "align_corners with nearest, expected bilinear");
  EXPECT_ERROR(adaptive_avg_pool2d(x, {0, 1}), "adaptive_avg_pool2d: output size 0 x 1, expected 1 to 1048576 each");
  // A batch keeps its samples when axes before or after it change.
  const Tensor batch = make_batch(x, {1, 1}, runtime_.devices());
  EXPECT_EQ(values(unflatten(flatten(batch, 0, 1), 0, {2, 6})), values(x));
  EXPECT_EQ(values(unbind(batch, 1)[4]), values(unbind(x, 1)[4]));
  EXPECT_ERROR(unbind(batch, 0), "gather()");
}

TEST_F(SequenceLayersTest, ModuleListsOwnAndNameTheirModules) {
  struct Net : Module {
    ModuleList<Linear> layers;
    ModuleList<> any;
    Net() {
      for (int i = 0; i < 3; ++i) layers.append(LinearOptions{.in_features = 2, .out_features = 2, .bias = false});
      any.append(std::make_shared<ReLU>());
      add("layers", layers), add("any", any);
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = x;
      for (Linear& layer : layers) y = any[0](layer(y));
      return y;
    }
  } net;
  EXPECT_EQ(names(on_devices(net).named_parameters()),
            (std::vector<std::string>{"layers.0.weight", "layers.1.weight", "layers.2.weight"}));
  for (std::size_t i = 0; i < net.layers.size(); ++i) net.layers[i].weight.set_data(tensor({2, 0, 0, -1}, {2, 2}));
  EXPECT_EQ(values(net(tensor({1, 1}, {1, 2}))), (Doubles{8, 0}));
  EXPECT_ERROR(net.layers[3], "module list: no module 3, there are 3");
}

}  // namespace
}  // namespace lockstep::testing
