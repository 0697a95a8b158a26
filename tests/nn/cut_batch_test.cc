// Layers on a batch that is cut: the shards alone decide the bits, and what does not mix samples is the same, up to
// rounding, as in one piece.
#include <algorithm>
#include <memory>
#include <set>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/padding.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/runtime/random_state.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

struct LayerCase {
  std::string name;
  std::function<std::unique_ptr<Module>()> make;
  Shape input;
};
void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.name; }

template <typename M>
std::function<std::unique_ptr<Module>()> layer(const typename M::Options& options) {
  return [options] { return std::make_unique<M>(options); };
}

class CutBatch : public ::testing::TestWithParam<LayerCase> {
 protected:
  // The output, the gradients of the input and of all parameters, and the buffers, of 5 samples in training.
  std::vector<Numbers> pass(const std::vector<std::int64_t>& counts, const std::vector<Device>& devices) {
    const LayerCase& c = GetParam();
    const auto net = c.make();
    net->initialize(Normal(0.5), devices, {.seed = 3});
    runtime_.random().restart(7);
    Tensor x = as_leaf(Tensor::from(Random(5).uniforms(c.input.numel()), c.input, {.dtype = DType::f32}));
    const Tensor y = (*net)(make_batch(x, counts, devices));
    sum(square(y) * y + sin(y)).backward();
    std::vector<Numbers> all{values(y), values(x.grad())};
    for (const Parameter& p : net->parameters()) all.push_back(values(p.gradient()));
    for (const auto& [name, buffer] : net->named_buffers()) {
      all.push_back(values(buffer.data(devices[0])));
      EXPECT_EQ(values(buffer.data(devices.back())), all.back()) << name;
    }
    return all;
  }

  Runtime runtime_{small_devices(2)};
  const std::vector<Device>& devices_ = runtime_.devices();
};

using LayersOfSamples = CutBatch;

TEST_P(LayersOfSamples, ShardsAreOneBatch) {
  const auto whole = pass({5}, {devices_[0]});
  for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{2, 2, 1}, {3, 0, 2}}) {
    const auto cut = pass(counts, devices_);
    EXPECT_EQ(pass(counts, {devices_[0]}), cut);
    ASSERT_EQ(cut.size(), whole.size());
    for (std::size_t i = 0; i < cut.size(); ++i) EXPECT_LT(distance(cut[i], whole[i]), 1e-5) << i;
  }
}

const TransformerEncoderLayerOptions kTransformer{
    .d_model = 4, .nhead = 2, .dim_feedforward = 6, .dropout = 0, .batch_first = true};

INSTANTIATE_TEST_SUITE_P(
    , LayersOfSamples,
    ::testing::
        Values(LayerCase{"LSTMCell", layer<LSTMCell>({.input_size = 3, .hidden_size = 4}), {5, 3}},
               LayerCase{"GRUCell", layer<GRUCell>({.hidden_size = 4}), {5, 3}},
               LayerCase{"RNNCell", layer<RNNCell>({.hidden_size = 4, .nonlinearity = Nonlinearity::relu}), {5, 3}},
               LayerCase{"RNN", layer<RNN>({.hidden_size = 4, .batch_first = true, .bidirectional = true}), {5, 6, 3}},
               LayerCase{"TransformerEncoder",
                         layer<TransformerEncoder>({.layer = kTransformer, .num_layers = 2, .norm = true}),
                         {5, 3, 4}},
               LayerCase{"BatchNormOfAllShards", layer<BatchNorm2d>({.synchronized = true}), {5, 3, 2, 2}},
               LayerCase{
                   "BatchNormWithoutAffine", layer<BatchNorm2d>({.synchronized = true, .affine = false}), {5, 3, 2, 2}},
               LayerCase{"BatchNormWithoutStatistics",
                         layer<BatchNorm1d>({.synchronized = true, .track_running_stats = false}),
                         {5, 3, 2}},
               LayerCase{"BatchNormOfAllBatches", layer<BatchNorm1d>({.momentum = {}, .synchronized = true}), {5, 3}},
               LayerCase{"BatchNorm3d", layer<BatchNorm3d>({.synchronized = true}), {5, 2, 2, 1, 2}},
               LayerCase{
                   "InstanceNorm", layer<InstanceNorm2d>({.affine = true, .track_running_stats = true}), {5, 3, 2, 2}},
               LayerCase{"LSTMWithProjection",
                         layer<LSTM>({.hidden_size = 4, .batch_first = true, .proj_size = 2}),
                         {5, 3, 2}},
               LayerCase{"PReLU", layer<PReLU>({.num_parameters = 3}), {5, 3, 2}},
               LayerCase{"MaxPool3d", layer<MaxPool3d>({.kernel_size = 2}), {5, 2, 2, 4, 2}},
               LayerCase{
                   "ZeroPad1d",
                   [] {
                     return std::make_unique<ZeroPad1d>(std::array<std::int64_t, 2>{1, 2});
                   },
                   {5, 2, 3}},
               LayerCase{"CircularPad1d",
                         [] { return std::make_unique<CircularPad1d>(std::array<std::int64_t, 2>{1, 2}); },
                         {5, 2, 3}},
               LayerCase{"CircularPad2d", [] { return std::make_unique<CircularPad2d>(1); }, {5, 2, 3, 3}}),
    ::testing::PrintToStringParamName());

// Each shard draws its own masks.
using LayersThatDraw = CutBatch;

TEST_P(LayersThatDraw, DevicesDoNotMatter) {
  const auto cut = pass({2, 2, 1}, devices_);
  EXPECT_EQ(pass({2, 2, 1}, {devices_[0]}), cut);
  EXPECT_NE(pass({5}, {devices_[0]}), cut);
  // Channels are dropped or doubled as a whole.
  std::set<bool> kinds;
  const std::int64_t pixels = GetParam().input.numel() / (5 * 8);
  const Numbers x =
      values(Tensor::from(Random(5).uniforms(GetParam().input.numel()), GetParam().input, {.dtype = DType::f32}));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool kept = cut[0][i - i % static_cast<std::size_t>(pixels)] != 0;
    EXPECT_EQ(cut[0][i], kept ? 2 * x[i] : 0) << i;
    kinds.insert(kept);
  }
  EXPECT_EQ(kinds.size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(
    , LayersThatDraw,
    ::testing::Values(LayerCase{"Dropout1d", [] { return std::make_unique<Dropout1d>(); }, {5, 8, 3}},
                      LayerCase{"Dropout2d", [] { return std::make_unique<Dropout2d>(); }, {5, 8, 2, 2}}),
    ::testing::PrintToStringParamName());

TEST(PaddingLayers, PadTheLastAxes) {
  const Tensor row = tensor({{1.0, 2.0, 3.0}});
  EXPECT_EQ(values(ZeroPad1d({1, 2})(row)), (Numbers{0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(values(CircularPad1d({1, 2})(row)), (Numbers{3, 1, 2, 3, 1, 2}));
  const Tensor image = tensor({{{1.0, 2.0}, {3.0, 4.0}}});
  EXPECT_EQ(values(CircularPad2d({1, 0, 0, 1})(image)), (Numbers{2, 1, 2, 4, 3, 4, 2, 1, 2}));
  EXPECT_EQ(values(ZeroPad2d({0, 1, 1, 0})(image)), (Numbers{0, 0, 0, 1, 2, 0, 3, 4, 0}));
}

}  // namespace
}  // namespace lockstep::testing
