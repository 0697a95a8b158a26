// Modules under the names that PyTorch users know: look-up by name, apply(), to(), printing, and modules made in place.
#include <sstream>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/upsample.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct SmallNet : Module {
  Linear& hidden = make<Linear>("hidden", {.in_features = 3, .out_features = 4});
  Linear& out = make<Linear>("out", {.out_features = 2, .bias = false});
  Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
};

struct WithMembers : Module {
  Linear fc{{.in_features = 1, .out_features = 1}};
  WithMembers() { add("fc", fc); }
};

TEST(ModuleSurface, ChildrenAreMadeWhereTheyAreDeclared) {
  Runtime runtime(small_devices(1));
  SmallNet net;
  EXPECT_EQ(names(net.named_parameters()), (std::vector<std::string>{"hidden.weight", "hidden.bias", "out.weight"}));
  net.initialize(Constant{1}, runtime.devices());
  EXPECT_EQ(values(net(ones({2, 3}, {.device = runtime.devices()[0]}))), std::vector<double>(4, 12));
}

TEST(ModuleSurface, ParametersAreFoundByTheirPath) {
  Runtime runtime(small_devices(1));
  Sequential net;
  net.append(Linear({.in_features = 2, .out_features = 2})).append(BatchNorm2d({.channels = 3}));
  EXPECT_EQ(net["0.weight"], net.at<Linear>(0).weight);
  EXPECT_EQ(net[1]["bias"], net.parameter("1.bias"));
  EXPECT_EQ(net.buffer("1.running_mean"), net.at<BatchNorm2d>(1).running_mean);
  EXPECT_ERROR(net["0.wieght"], "module: no parameter '0.wieght', expected one of: 0.weight, 0.bias, 1.weight, 1.bias");
  EXPECT_ERROR(net.buffer("0.weight"), "module: no buffer '0.weight'");
  EXPECT_ERROR(ReLU()["x"], "(none)");
  ModuleList<Linear> list;
  list.append(LinearOptions{.in_features = 1, .out_features = 1});
  EXPECT_EQ(list["0.weight"], list[0].weight);
}

TEST(ModuleSurface, ASequenceTakesModulesAndGivesThemBackByType) {
  Runtime runtime(small_devices(1));
  const LinearOptions options{.in_features = 2, .out_features = 2};
  Sequential net, inner;
  inner.append<Linear>(options).append(Tanh());
  net.append(Linear(options)).append(LeakyReLU(0.5)).append<Linear>({.out_features = 1}).append(std::move(inner));
  EXPECT_EQ(net.size(), 4U);
  EXPECT_EQ(net.at<LeakyReLU>(1).str(), "LeakyReLU(negative_slope=0.5)");
  EXPECT_EQ(names(net.named_parameters()).back(), "3.0.bias");
  EXPECT_ERROR(net.at<Linear>(1), "sequential: module 1 is LeakyReLU(");
  EXPECT_ERROR(net[4], "sequential: no module 4, there are 4");
  // Parameters and mode move along; members of a module cannot.
  Linear frozen(options);
  frozen.freeze();
  frozen.eval();
  const Parameter weight = frozen.weight;
  net.append(std::move(frozen));
  EXPECT_EQ(net.at<Linear>(4).weight, weight);
  EXPECT_EQ(net["4.weight"], weight);
  EXPECT_FALSE(net[4].training());
  EXPECT_ERROR(net.append(WithMembers()), "module: child 'fc' is a member, which cannot move");
  net.append<WithMembers>().append(SmallNet());
}

// Their children move along.
TEST(ModuleSurface, LayersMadeOfLayersCanBeAppended) {
  Runtime runtime(small_devices(1));
  Sequential images;
  images.append(Residual({.channels = 2, .stride = 2, .project = true})).append(Residual({.channels = 2}));
  images.initialize(Xavier{}, runtime.devices());
  const auto on = [&](const Shape& shape) { return ones(shape, {.device = runtime.devices()[0]}); };
  EXPECT_EQ(images(on({1, 3, 4, 4})).shape(), (Shape{1, 2, 2, 2}));
  EXPECT_EQ(images["0.conv3.weight"].shape(), (Shape{2, 3, 1, 1}));

  Sequential words;
  words.append(TransformerEncoderLayer({.d_model = 4, .nhead = 2, .dim_feedforward = 8}));
  words.append(MultiheadAttention({.embed_dim = 4, .num_heads = 2}));
  words.initialize(Xavier{}, runtime.devices());
  EXPECT_EQ(words(on({3, 1, 4})).shape(), (Shape{3, 1, 4}));
  EXPECT_EQ(words["0.self_attn.out_proj.weight"].shape(), (Shape{4, 4}));
  EXPECT_EQ(words.at<MultiheadAttention>(1).out_proj.weight, words["1.out_proj.weight"]);
}

TEST(ModuleSurface, ApplyReachesChildrenFirst) {
  SmallNet net;
  std::vector<const Module*> seen;
  net.apply([&](Module& m) { seen.push_back(&m); });
  EXPECT_EQ(seen, (std::vector<const Module*>{&net.hidden, &net.out, &net}));
}

TEST(ModuleSurface, ToMovesValuesToOtherDevices) {
  Runtime runtime(small_devices(3));
  const auto& devices = runtime.devices();
  Sequential net;
  net.append(Linear({.in_features = 3, .out_features = 2})).append(BatchNorm2d());
  net.to(devices);  // no values yet: initialize() names its own place
  net.initialize(Normal{}, {devices[0]});
  const auto before = values(net["0.weight"].data(devices[0]));
  sum(square(net["0.weight"])).backward();
  net.to({devices[1], devices[2]});
  EXPECT_EQ(net["0.weight"].devices(), (std::vector<Device>{devices[1], devices[2]}));
  EXPECT_EQ(values(net["0.weight"].data(devices[2])), before);
  EXPECT_EQ(net.buffer("1.num_batches_tracked").devices().size(), 2U);
  EXPECT_ERROR(net["0.weight"].data(devices[0]), "parameter 0.weight is not initialized on cpu:0");
  std::vector<double> gradient = before;
  for (double& x : gradient) x *= 2;
  EXPECT_EQ(values(net["0.weight"].gradient()), gradient);
  // Operations find the new replicas, and gradients their way back.
  sum(square(net["0.weight"])).backward();
  for (double& x : gradient) x *= 2;
  EXPECT_EQ(values(net["0.weight"].gradient()), gradient);
  // A shape that is not known yet is settled where the module is now.
  EXPECT_EQ(net["1.weight"].devices(), (std::vector<Device>{devices[1], devices[2]}));
  net["1.weight"].settle_shape({2});
  EXPECT_EQ(values(net["1.weight"].data(devices[1])), (std::vector<double>{1, 1}));
}

TEST(ModuleSurface, ModulesPrintAsInPyTorch) {
  Runtime runtime(small_devices(1));
  SmallNet net;
  EXPECT_EQ(net.str(),
            "SmallNet(\n"
            "  (hidden): Linear(in_features=3, out_features=4, bias=True)\n"
            "  (out): LazyLinear(in_features=0, out_features=2, bias=False)\n"
            ")");
  net.initialize(Constant{1}, runtime.devices());
  net(ones({1, 3}, {.device = runtime.devices()[0]}));
  EXPECT_NE(str(net).find("(out): Linear(in_features=4, out_features=2, bias=False)"), std::string::npos);

  Sequential all;
  all.append(Conv2d({.in_channels = 3, .out_channels = 8, .kernel_size = 3, .stride = 2, .padding = 1, .bias = false}))
      .append(Conv2d({.in_channels = 8, .out_channels = 8, .kernel_size = 1, .dilation = 2, .groups = 4}))
      .append(Conv1d({.in_channels = 2, .out_channels = 4, .kernel_size = 5}))
      .append(
          ConvTranspose2d({.in_channels = 4, .out_channels = 2, .kernel_size = 2, .stride = 2, .output_padding = 1}))
      .append(BatchNorm2d({.channels = 8}))
      .append(LayerNorm({.normalized_shape = {10}}))
      .append(GroupNorm({.num_groups = 2, .num_channels = 8}))
      .append(Embedding({.num_embeddings = 10, .embedding_dim = 3, .padding_idx = 0}))
      .append(MaxPool2d({.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}))
      .append(AvgPool2d({.kernel_size = {2, 3}, .stride = {2, 3}}))
      .append(AdaptiveAvgPool2d(1))
      .append(Dropout(0.5))
      .append(GELU({.approximate = GeluApproximation::tanh}))
      .append(Softplus(1, 20))
      .append(Flatten())
      .append(Unflatten(1, {-1, 1}))
      .append(Upsample({.scale_factor = 2}))
      .append(LSTM({.input_size = 10, .hidden_size = 20, .num_layers = 2, .batch_first = true}))
      .append(Conv2d({.in_channels = 1, .out_channels = 2, .kernel_size = {1, 7}, .padding = {0, 3}}))
      .append(ConvTranspose2d(
          {.in_channels = 1, .out_channels = 2, .kernel_size = {2, 3}, .stride = 2, .output_padding = {1, 0}}))
      .append(BatchNorm1d({.channels = 4}))
      .append(MaxPool2d({.kernel_size = {3, 2}}))
      .append(MaxPool1d({.kernel_size = 3}))
      .append(AvgPool1d({.kernel_size = 3, .stride = 2, .padding = 1}))
      .append(LPPool2d(2, {.kernel_size = 2, .stride = 3, .ceil_mode = true}))
      .append<Sequential>();
  EXPECT_EQ(str(all),
            "Sequential(\n"
            "  (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)\n"
            "  (1): Conv2d(8, 8, kernel_size=(1, 1), stride=(1, 1), dilation=(2, 2), groups=4)\n"
            "  (2): Conv1d(2, 4, kernel_size=(5,), stride=(1,))\n"
            "  (3): ConvTranspose2d(4, 2, kernel_size=(2, 2), stride=(2, 2), output_padding=(1, 1))\n"
            "  (4): BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
            "  (5): LayerNorm((10,), eps=1e-05, elementwise_affine=True)\n"
            "  (6): GroupNorm(2, 8, eps=1e-05, affine=True)\n"
            "  (7): Embedding(10, 3, padding_idx=0)\n"
            "  (8): MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)\n"
            "  (9): AvgPool2d(kernel_size=(2, 3), stride=(2, 3), padding=0)\n"
            "  (10): AdaptiveAvgPool2d(output_size=(1, 1))\n"
            "  (11): Dropout(p=0.5, inplace=False)\n"
            "  (12): GELU(approximate='tanh')\n"
            "  (13): Softplus(beta=1.0, threshold=20.0)\n"
            "  (14): Flatten(start_dim=1, end_dim=-1)\n"
            "  (15): Unflatten(dim=1, unflattened_size=(-1, 1))\n"
            "  (16): Upsample(scale_factor=2.0, mode='nearest')\n"
            "  (17): LSTM(10, 20, num_layers=2, batch_first=True)\n"
            "  (18): Conv2d(1, 2, kernel_size=(1, 7), stride=(1, 1), padding=(0, 3))\n"
            "  (19): ConvTranspose2d(1, 2, kernel_size=(2, 3), stride=(2, 2), output_padding=(1, 0))\n"
            "  (20): BatchNorm1d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)\n"
            "  (21): MaxPool2d(kernel_size=(3, 2), stride=(3, 2), padding=0, dilation=1, ceil_mode=False)\n"
            "  (22): MaxPool1d(kernel_size=3, stride=3, padding=0, dilation=1, ceil_mode=False)\n"
            "  (23): AvgPool1d(kernel_size=(3,), stride=(2,), padding=(1,))\n"
            "  (24): LPPool2d(norm_type=2.0, kernel_size=2, stride=3, ceil_mode=True)\n"
            "  (25): Sequential()\n"
            ")");

  // Nested modules are indented.
  ModuleList<SmallNet> list;
  list.append();
  std::ostringstream out;
  out << list;
  EXPECT_EQ(out.str(),
            "ModuleList(\n"
            "  (0): SmallNet(\n"
            "    (hidden): Linear(in_features=3, out_features=4, bias=True)\n"
            "    (out): LazyLinear(in_features=0, out_features=2, bias=False)\n"
            "  )\n"
            ")");
}

}  // namespace
}  // namespace lockstep::testing
