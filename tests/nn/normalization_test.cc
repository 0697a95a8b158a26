
#include "lockstep/nn/normalization.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;

class NormalizationTest : public ::testing::Test {
 protected:
  template <typename M>
  M& on_devices(M& module) {
    module.initialize(Normal{}, runtime_.devices());
    return module;
  }
  Tensor tensor(const Doubles& values, const Shape& shape) { return make_tensor(values, shape, runtime_.devices()[0]); }

  Runtime runtime_{small_devices(2)};
};

void expect_near(const Tensor& x, const Doubles& expected) {
  const Doubles found = values(x);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
}

TEST_F(NormalizationTest, LayerNormOverTheLastAxes) {
  LayerNorm norm({.normalized_shape = {2, 2}});
  on_devices(norm);
  // Mean 3, variance 5.
  const double r = 1 / std::sqrt(5);
  expect_near(norm(tensor({0, 2, 4, 6, 10, 10, 10, 10}, {2, 2, 2})), {-3 * r, -r, r, 3 * r, 0, 0, 0, 0});
  EXPECT_EQ(names(norm.named_parameters()), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(norm.weight.shape(), (Shape{2, 2}));
  norm.weight.set_data(tensor({1, 2, 3, 4}, {2, 2}));
  norm.bias.set_data(tensor({5, 5, 5, 5}, {2, 2}));
  expect_near(norm(tensor({0, 2, 4, 6}, {1, 2, 2})), {5 - 3 * r, 5 - 2 * r, 5 + 3 * r, 5 + 12 * r});
  EXPECT_ERROR(norm(tensor({1, 2}, {1, 2})),
               "layer_norm: input is [1, 2] f32 on cpu:0, expected [2, 2] as its last axes");
  EXPECT_TRUE(LayerNorm({.normalized_shape = {2}, .elementwise_affine = false}).parameters().empty());
  EXPECT_EQ(LayerNorm({.normalized_shape = {2}, .bias = false}).parameters().size(), 1U);
  EXPECT_ERROR(LayerNorm({}), "layer_norm: normalized shape [], expected at least one axis");
}

TEST_F(NormalizationTest, RmsNormKeepsTheMean) {
  RMSNorm norm({.normalized_shape = {2}});
  expect_near(on_devices(norm)(tensor({3, 4, 0, 5}, {2, 2})),
              {3 / std::sqrt(12.5), 4 / std::sqrt(12.5), 0, std::sqrt(2)});
  EXPECT_EQ(names(norm.named_parameters()), (std::vector<std::string>{"weight"}));
}

TEST_F(NormalizationTest, GroupNormOverGroupsOfChannels) {
  GroupNorm norm({.num_groups = 2, .num_channels = 4});
  on_devices(norm).weight.set_data(tensor({1, 1, 1, 10}, {4}));
  const double r = 1 / std::sqrt(5);
  expect_near(norm(tensor({0, 2, 4, 6, 1, 1, 3, 3}, {1, 4, 2})), {-3 * r, -r, r, 3 * r, -1, -1, 10, 10});
  EXPECT_ERROR(GroupNorm({.num_groups = 3, .num_channels = 4}), "group_norm: 3 groups do not divide 4 channels");
  EXPECT_ERROR(norm(tensor({1, 2}, {1, 2})), "expected 4 channels on axis 1");
}

// Each sample by itself: the same on one device and cut over two, gradients too.
TEST_F(NormalizationTest, ABatchIsNormalizedSampleBySample) {
  const auto model = [&](const Tensor& ids) {
    Sequential net;
    net.append<Embedding>(EmbeddingOptions{.num_embeddings = 5, .embedding_dim = 4, .padding_idx = 0});
    net.append<LayerNorm>(LayerNormOptions{.normalized_shape = {4}}).append<SiLU>();
    net.append<GroupNorm>(GroupNormOptions{.num_groups = 1, .num_channels = 3})
        .append<RMSNorm>(RMSNormOptions{.normalized_shape = {4}});
    net.append<LeakyReLU>(0.2).append<ELU>().append<Softplus>(2.0);
    net.initialize(Normal{1}, runtime_.devices());
    sum(square(net(ids)) * 0.1).backward();
    Doubles found;
    for (const Parameter& p : net.parameters()) {
      for (double v : values(p.gradient())) found.push_back(v);
    }
    return found;
  };
  const Tensor ids =
      Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4, 0, 1, 2, 2, 3, 4, 4, 1}, {4, 3}).to(runtime_.devices()[0]);
  const auto at = std::make_shared<Placement>(
      std::vector<std::int64_t>{3, 1}, std::vector<Slot>{{0, runtime_.devices()[0]}, {1, runtime_.devices()[1]}});
  const Doubles whole = model(ids);
  EXPECT_LT(distance(model(scatter(ids, at)), whole), 1e-5);
  EXPECT_EQ(Doubles(whole.begin(), whole.begin() + 4), Doubles(4, 0));  // padding
}

// No samples: parameters get zeros.
TEST_F(NormalizationTest, NoRows) {
  LayerNorm norm({.normalized_shape = {4}});
  on_devices(norm);
  const Tensor y = norm(tensor({}, {0, 3, 4}));
  EXPECT_EQ(y.shape(), (Shape{0, 3, 4}));
  sum(y).backward();
  EXPECT_EQ(values(norm.weight.gradient()), Doubles(4, 0));
  EXPECT_EQ(values(norm.bias.gradient()), Doubles(4, 0));
  EXPECT_EQ(group_norm(tensor({}, {0, 4, 3}), 2).shape(), (Shape{0, 4, 3}));
}

TEST_F(NormalizationTest, ErrorsNameWhatDoesNotFit) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2});
  EXPECT_ERROR(layer_norm(x, {2}, tensor({1}, {1})), "layer_norm: weight is [1] f32, expected [2] f32");
  EXPECT_ERROR(layer_norm(x, {2}, {}, cast(tensor({1, 1}, {2}), DType::bf16)),
               "layer_norm: bias is [2] bf16, expected [2] f32");
  EXPECT_ERROR(rms_norm(cast(x, DType::f64), {2}, tensor({1, 1}, {2})),
               "rms_norm: weight is [2] f32, expected [2] f64");
  const auto at = std::make_shared<Placement>(
      std::vector<std::int64_t>{1, 1}, std::vector<Slot>{{0, runtime_.devices()[0]}, {1, runtime_.devices()[1]}});
  const Tensor cut = scatter(Tensor::host({2, 2}), at);
  EXPECT_EQ(layer_norm(cut, {2}).shape(), (Shape{2, 2}));
  EXPECT_ERROR(layer_norm(cut, {2, 2}), "are on axis 0, and it would take their mean: gather() puts them together");
  EXPECT_ERROR(layer_norm(x, {2}, scatter(Tensor::host({2}), at)), "but a parameter is the same for all samples");
}

// Whichever initializer runs, and when it runs again; a loaded row stays.
TEST_F(NormalizationTest, PaddingStartsAtZero) {
  Embedding embedding({.num_embeddings = 3, .embedding_dim = 2, .padding_idx = -2});
  for (const Initializer& initializer : std::vector<Initializer>{Normal{1}, Constant{5}, TruncatedNormal{}}) {
    embedding.initialize(initializer, runtime_.devices(), {.force_reinit = true});
    for (Device device : runtime_.devices()) {
      const Doubles found = values(embedding.weight.data(device));
      for (std::size_t i : {0, 1, 4, 5}) EXPECT_NE(found[i], 0);
      EXPECT_EQ(found[2], 0);
      EXPECT_EQ(found[3], 0);
    }
  }
  load_state_dict(embedding, {{"weight", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2})}});
  EXPECT_EQ(values(embedding.weight.data(runtime_.devices()[0])), (Doubles{1, 2, 3, 4, 5, 6}));
  embedding.to({runtime_.devices()[1]});
  EXPECT_EQ(values(embedding.weight.data(runtime_.devices()[1])), (Doubles{1, 2, 3, 4, 5, 6}));
  EXPECT_ERROR(Embedding({.num_embeddings = 3, .embedding_dim = 2, .padding_idx = 3}),
               "embedding: padding_idx 3 of 3 rows");
  EXPECT_ERROR(Embedding({.num_embeddings = 3, .embedding_dim = 2, .padding_idx = -4}),
               "embedding: padding_idx -4 of 3 rows");
}

TEST_F(NormalizationTest, EmbeddingHasPyTorchsName) {
  Embedding embedding({.num_embeddings = 3, .embedding_dim = 2});
  EXPECT_EQ(names(on_devices(embedding).named_parameters()), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(embedding.weight.shape(), (Shape{3, 2}));
  EXPECT_ERROR(Embedding({.num_embeddings = 3}), "embedding: 3 rows of 0, expected at least 1 of each");
}

}  // namespace
}  // namespace lockstep::testing
