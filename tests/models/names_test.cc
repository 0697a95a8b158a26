// The models' parameters have the names, shapes, and numbers of the same models in PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

std::map<std::string, Shape> shapes_after(Sequential& net, const Shape& image) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  net.initialize(Constant{0}, runtime.devices());
  net(Tensor::host(image).to(runtime.devices()[0]));
  std::map<std::string, Shape> shapes;
  for (auto& [name, tensor] : state_dict(net)) shapes[name] = tensor.shape();
  return shapes;
}

TEST(Models, Resnet18) {
  auto net = resnet18();
  auto shapes = shapes_after(*net, {2, 1, 8, 8});
  EXPECT_EQ(shapes.size(), 2 * 20U + 5 * 17U + 2U);  // convolutions, batch norms, the dense layer
  EXPECT_EQ(shapes.at("0.weight"), (Shape{64, 1, 3, 3}));
  EXPECT_EQ(shapes.at("1.running_mean"), Shape{64});
  EXPECT_EQ(shapes.at("1.num_batches_tracked"), Shape{});
  EXPECT_EQ(shapes.at("resnet_block1.1.conv2.weight"), (Shape{64, 64, 3, 3}));
  EXPECT_EQ(shapes.at("resnet_block2.0.conv3.bias"), Shape{128});
  EXPECT_EQ(shapes.at("resnet_block2.0.conv3.weight"), (Shape{128, 64, 1, 1}));
  EXPECT_EQ(shapes.at("resnet_block4.1.bn2.running_var"), Shape{512});
  EXPECT_EQ(shapes.at("fc.1.weight"), (Shape{10, 512}));
  EXPECT_EQ(shapes.at("fc.1.bias"), Shape{10});
  EXPECT_FALSE(shapes.contains("resnet_block1.0.conv3.weight"));
  EXPECT_FALSE(shapes.contains("resnet_block2.1.conv3.weight"));
  EXPECT_EQ(net->parameter_count(), 11'175'818);
}

TEST(Models, Lenet) {
  auto net = lenet();
  auto shapes = shapes_after(*net, {1, 1, 28, 28});
  EXPECT_EQ(shapes.at("0.weight"), (Shape{6, 1, 5, 5}));
  EXPECT_EQ(shapes.at("3.weight"), (Shape{16, 6, 5, 5}));
  EXPECT_EQ(shapes.at("7.weight"), (Shape{120, 400}));
  EXPECT_EQ(shapes.at("11.bias"), Shape{10});
  EXPECT_EQ(net->parameter_count(), 61'706);
}

TEST(Models, Mlp) {
  auto net = mlp(7);
  auto shapes = shapes_after(*net, {1, 1, 28, 28});
  EXPECT_EQ(shapes.at("1.weight"), (Shape{256, 784}));
  EXPECT_EQ(shapes.at("3.weight"), (Shape{7, 256}));
}

TEST(Models, AreMadeByName) {
  for (const std::string& name : model_names()) EXPECT_NE(make_model(name), nullptr);
  EXPECT_ERROR(make_model("vgg"), "unknown model vgg: expected resnet18, lenet, or mlp");
  EXPECT_ERROR(make_model("mlp", 0), "0 classes");
}

TEST(Models, LanguageModelsRefuseWhatIsNoBatchOfTexts) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  GPT gpt({.vocab_size = 5, .block_size = 6, .n_layer = 1, .n_head = 2, .n_embd = 8});
  for (const Shape& shape : {Shape{6}, Shape{1, 0}, Shape{1, 7}, Shape{1, 6, 1}}) {
    EXPECT_ERROR(gpt(Tensor::host(shape, DType::i64)),
                 fmt::format("gpt: input is {} i64 on cpu:0, expected 2 axes (N, T), of 1 to 6 steps", shape));
  }
  LstmLanguageModel lstm({.vocab_size = 5});
  EXPECT_ERROR(lstm(Tensor::host({6}, DType::i64)), "lstm language model: input is [6] i64 on cpu:0, expected 2 axes");
}

TEST(Models, AGptMayTieItsWeights) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  GPT gpt({.vocab_size = 5, .block_size = 6, .n_layer = 1, .n_head = 2, .n_embd = 8, .tie_weights = true});
  EXPECT_EQ(gpt["lm_head.weight"], gpt["transformer.wte.weight"]);
  EXPECT_EQ(gpt(Tensor::host({2, 3}, DType::i64)).shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(gpt.named_parameters().size(), gpt.parameters().size() + 1);
}

TEST(Models, AResnetTakesAnotherHead) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  ResNet net({.layers = {1, 1, 1, 1}, .num_classes = 10});
  net.replace("fc", Sequential(Linear(512, 4), Dropout(0.1), Linear(4, 3)));
  const NoGradGuard no_grad;
  EXPECT_EQ(net(zeros({2, 3, 32, 32})).shape(), (Shape{2, 3}));
  EXPECT_EQ(net.parameters().back().name(), "fc.2.bias");
}

TEST(Models, AResnetTakesOtherActivationsAndPools) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  ResNet net({.layers = {1, 1, 1, 1}, .num_classes = 3});
  const NoGradGuard no_grad;
  const Tensor x = randn({2, 3, 32, 32});
  const auto outputs = [&] { return net(x).to_vector<float>(); };
  const std::vector<float> first = outputs();
  net.replace("maxpool", Identity());
  const std::vector<float> without_pool = outputs();
  EXPECT_NE(without_pool, first);
  net.replace("relu", Tanh());
  EXPECT_NE(outputs(), without_pool);
  net.replace("relu", ReLU());
  net.replace("maxpool", MaxPool2d(Pool2dOptions{.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}));
  EXPECT_EQ(outputs(), first);
}

// A file as torchvision's are: its names and shapes, made here from their rules.
TEST(Models, Resnet50LoadsAFileOfTorchvisionsShape) {
  std::vector<std::pair<std::string, Shape>> entries;
  const auto conv_and_norm = [&](const std::string& conv, const std::string& norm, const Shape& weight) {
    entries.emplace_back(conv + ".weight", weight);
    for (const char* name : {".weight", ".bias", ".running_mean", ".running_var"}) {
      entries.emplace_back(norm + name, Shape{weight[0]});
    }
    entries.emplace_back(norm + ".num_batches_tracked", Shape{});
  };
  conv_and_norm("conv1", "bn1", {64, 3, 7, 7});
  std::int64_t in = 64;
  for (const auto& [layer, blocks] : {std::pair{1, 3}, {2, 4}, {3, 6}, {4, 3}}) {
    const std::int64_t width = 32 << layer, out = 4 * width;
    for (int b = 0; b < blocks; ++b) {
      const std::string block = fmt::format("layer{}.{}.", layer, b);
      conv_and_norm(block + "conv1", block + "bn1", {width, in, 1, 1});
      conv_and_norm(block + "conv2", block + "bn2", {width, width, 3, 3});
      conv_and_norm(block + "conv3", block + "bn3", {out, width, 1, 1});
      if (b == 0) conv_and_norm(block + "downsample.0", block + "downsample.1", {out, in, 1, 1});
      in = out;
    }
  }
  entries.emplace_back("fc.weight", Shape{1000, 2048});
  entries.emplace_back("fc.bias", Shape{1000});
  StateDict state;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, shape] = entries[i];
    if (shape.dim() == 0) {
      state.emplace_back(name, Tensor::from(std::vector<std::int64_t>{7}, shape));
    } else {
      const auto count = static_cast<std::size_t>(shape.numel());
      state.emplace_back(name, Tensor::from(std::vector<float>(count, static_cast<float>(i + 1)), shape));
    }
  }
  const TemporaryFolder folder;
  const auto path = folder.path() / "resnet50.safetensors";
  write_safetensors(path, as_bytes(state), {{"format", "pt"}});
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  const auto net = torchvision::resnet50();
  net->initialize(Constant{0}, runtime.devices());
  load_weights(path, *net);
  for (const auto& [name, tensor] : state_dict(*net)) {
    if (tensor.dtype() == DType::i64) {
      EXPECT_EQ(tensor.item<std::int64_t>(), 7) << name;
    } else {
      const auto place = std::ranges::find(entries, name, &std::pair<std::string, Shape>::first) - entries.begin();
      EXPECT_EQ(tensor.to_vector<float>().back(), static_cast<float>(place + 1)) << name;
    }
  }
}

// The stem halves the image twice, and layers 2 to 4 once each.
TEST(Models, ResnetsClassifyImages) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  for (const bool bottleneck : {false, true}) {
    ResNet net({.bottleneck = bottleneck, .layers = {1, 1, 1, 1}, .num_classes = 5});
    net.initialize(Kaiming{}, runtime.devices());
    const Tensor y = net(Tensor::host({2, 3, 40, 33}).to(runtime.devices()[0]));
    EXPECT_EQ(y.shape(), (Shape{2, 5}));
    sum(y).backward();
    EXPECT_TRUE(net.named_parameters()[0].second.gradient().defined());
  }
  EXPECT_ERROR(ResNet({.layers = {1, 0, 1, 1}}), "resnet: 0 blocks in layer2, expected at least 1");
}

}  // namespace
}  // namespace lockstep
