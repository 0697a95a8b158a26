// Layers made from sizes by position are those made from options.
#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/transformer.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

std::vector<std::pair<std::string, Shape>> shapes_of(const Module& m) {
  std::vector<std::pair<std::string, Shape>> all;
  for (const auto& [name, p] : m.named_parameters()) all.emplace_back(name, p.shape());
  return all;
}

void expect_same(const Module& by_position, const Module& by_options) {
  EXPECT_EQ(by_position.str(), by_options.str());
  EXPECT_EQ(shapes_of(by_position), shapes_of(by_options)) << by_options;
}

TEST(PositionalSizes, AreThoseOfTheOptions) {
  expect_same(Conv3d(2, 4, {1, 2, 3}, {.stride = 2}),
              Conv3d({.in_channels = 2, .out_channels = 4, .kernel_size = {1, 2, 3}, .stride = 2}));
  expect_same(ConvTranspose1d(2, 4, 3, {.stride = 2}),
              ConvTranspose1d({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .stride = 2}));
  expect_same(BatchNorm3d(4, {.eps = 0.1}), BatchNorm3d({.channels = 4, .eps = 0.1}));
  expect_same(InstanceNorm1d(4), InstanceNorm1d({.num_features = 4}));
  expect_same(InstanceNorm2d(4, {.affine = true}), InstanceNorm2d({.num_features = 4, .affine = true}));
  expect_same(InstanceNorm3d(4, {.eps = 0.1}), InstanceNorm3d({.num_features = 4, .eps = 0.1}));
  expect_same(PReLU(4), PReLU({.num_parameters = 4}));
  expect_same(PReLU(4, 0.5), PReLU({.num_parameters = 4, .init = 0.5}));
  expect_same(RNN(3, 4, {.num_layers = 2, .nonlinearity = Nonlinearity::relu}),
              RNN({.input_size = 3, .hidden_size = 4, .num_layers = 2, .nonlinearity = Nonlinearity::relu}));
  expect_same(LSTMCell(3, 4), LSTMCell({.input_size = 3, .hidden_size = 4}));
  expect_same(GRUCell(3, 4, {.bias = false}), GRUCell({.input_size = 3, .hidden_size = 4, .bias = false}));
  expect_same(RNNCell(3, 4), RNNCell({.input_size = 3, .hidden_size = 4}));
  expect_same(MaxPool3d(2), MaxPool3d({.kernel_size = 2}));
  expect_same(AvgPool3d({1, 2, 3}, 2, 0), AvgPool3d({.kernel_size = {1, 2, 3}, .stride = 2}));
  expect_same(EmbeddingBag(5, 3, {.mode = BagMode::sum}),
              EmbeddingBag({.num_embeddings = 5, .embedding_dim = 3, .mode = BagMode::sum}));
  const TransformerEncoderLayerOptions layer{.d_model = 4, .nhead = 2, .dim_feedforward = 8};
  expect_same(TransformerDecoderLayer(4, 2, {.dim_feedforward = 8}), TransformerDecoderLayer(layer));
  expect_same(TransformerEncoder(layer, 2, true), TransformerEncoder({.layer = layer, .num_layers = 2, .norm = true}));
  expect_same(TransformerDecoder(layer, 2), TransformerDecoder({.layer = layer, .num_layers = 2}));
  const TransformerOptions one_each{.num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 8};
  TransformerOptions sized = one_each;
  sized.d_model = 4, sized.nhead = 2;
  expect_same(Transformer(4, 2, one_each), Transformer(sized));
}

TEST(PositionalSizes, MayNotContradictTheOptions) {
  EXPECT_ERROR(Conv3d(2, 4, 3, {.out_channels = 5}), "conv3d: out_channels is given by position and, differently");
  EXPECT_ERROR(LSTMCell(0, 4), "lstm cell: input_size is 0, expected at least 1 by position");
  EXPECT_ERROR(Transformer(4, 2, {.d_model = 8}), "transformer: d_model is given by position and, differently");
}

TEST(PositionalSizes, LayersPrintAsInPyTorch) {
  EXPECT_EQ(MaxPool3d(2).str(), "MaxPool3d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(AvgPool3d({1, 2, 3}, 2, 0).str(), "AvgPool3d(kernel_size=(1, 2, 3), stride=2, padding=0)");
  EXPECT_EQ(AdaptiveAvgPool3d(1).str(), "AdaptiveAvgPool3d(output_size=(1, 1, 1))");
  EXPECT_EQ(EmbeddingBag(5, 3, {.padding_idx = 0}).str(), "EmbeddingBag(5, 3, mode='mean', padding_idx=0)");
}

// Volumes are padded as sequences and images are.
TEST(Padding, OfVolumes) {
  Runtime runtime;
  const Tensor x = rand({1, 2, 4, 3, 5}, {.seed = 1});
  for (const PadMode mode : {PadMode::zeros, PadMode::circular}) {
    Conv3d padded(2, 3, {3, 2, 1}, {.padding = kSame, .dilation = {1, 2, 1}, .padding_mode = mode});
    Conv3d plain(2, 3, {3, 2, 1}, {.dilation = {1, 2, 1}});
    padded.initialize(Xavier{}, runtime.devices());
    plain.initialize(Xavier{}, runtime.devices());
    const Tensor y = padded(x);
    EXPECT_EQ(y.shape(), (Shape{1, 3, 4, 3, 5}));
    EXPECT_EQ(y.to_vector<float>(), plain(pad(x, {0, 0, 1, 1, 1, 1}, mode)).to_vector<float>());
  }
  EXPECT_ERROR(Conv3d(2, 3, 3, {.stride = 2, .padding = kSame})(x), "conv3d: stride 2");
}

}  // namespace
}  // namespace lockstep::testing
