// Models for images and for text. Their parameters have the names that the same models have in PyTorch.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/module_list.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// Models for images: those of the tutorials, and torchvision's residual nets.
//
//   auto net = resnet18();
//   net->initialize(Normal(0.01), devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
//
// The models for small images take [N, C, H, W] and return logits [N, classes]. The first batch sets C, and for LeNet
// and the MLP also H and W; later batches must agree.

// ResNet-18 for small images (D2L 13.6): no max pool, 3x3 stem, any H and W. For large images, use
// torchvision::resnet18() below.
std::unique_ptr<Sequential> resnet18(std::int64_t classes = 10);
// LeNet-5 with ReLU and max pools. H and W are at least 12: [N, 1, 28, 28] for Fashion-MNIST.
std::unique_ptr<Sequential> lenet(std::int64_t classes = 10);
// One hidden layer of 256 units with ReLU, on the flattened image.
std::unique_ptr<Sequential> mlp(std::int64_t classes = 10);

// Makes a model by its command-line name. An unknown name is an Error that lists the known ones.
std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes = 10);
// The initializer that the tutorials use for a model: Xavier for LeNet, otherwise Normal(0.01).
Initializer model_initializer(std::string_view name);
std::vector<std::string> model_names();

struct ResNetOptions {
  // Each block has three convolutions (1x1, 3x3, and 1x1 with four times the channels) instead of two (3x3).
  bool bottleneck = false;
  std::array<int, 4> layers{2, 2, 2, 2};  // blocks at 64, 128, 256, and 512 channels
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
};

// A residual net for large images (He et al. 2015), [N, in_channels, H, W] -> [N, num_classes]. H and W may be any,
// usually 224. It loads torchvision's weight files: parameters are conv1, bn1, layer1 to layer4, fc, and
// layer2.0.downsample.0 is the convolution on a shortcut. Throws if an option is below 1.
class ResNet : public Module {
 public:
  explicit ResNet(const ResNetOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Sequential> layer(int blocks, std::int64_t channels, std::int64_t stride, bool bottleneck);

  std::int64_t channels_ = 64;  // of the last block so far
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  Linear fc_;
};

// torchvision's models, with its names, shapes, and numbers of parameters.
//
//   auto net = torchvision::resnet18();
//   net->initialize(Kaiming{}, devices);
//   load_weights("resnet18.safetensors", *net);
namespace torchvision {
std::unique_ptr<ResNet> resnet18(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet34(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet50(std::int64_t num_classes = 1000);
}  // namespace torchvision

// Language models: a GPT like GPT-2, of any size, and one of LSTM layers.
//
//   GPT gpt({.vocab_size = 65, .block_size = 128});
//   gpt.initialize(Normal(0.02), devices);
//   Tensor logits = gpt(ids);  // i64 [N, T] -> [N, T, 65]

struct GPTOptions {
  std::int64_t vocab_size = 0;
  std::int64_t block_size = 128;  // the longest sequence
  std::int64_t n_layer = 4;
  std::int64_t n_head = 4;
  std::int64_t n_embd = 128;
  double dropout = 0.1;
  // The sum of both embeddings is cast to this type, and all later layers compute in it: f32, or bf16 or f16 with f32
  // weights.
  DType dtype = DType::f32;
};

// Causal self-attention, [N, T, n_embd] -> [N, T, n_embd]. One linear layer computes the queries, keys, and values of
// all heads.
class CausalSelfAttention : public Module {
 public:
  explicit CausalSelfAttention(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  GPTOptions options_;
  Linear c_attn_, c_proj_;
  Dropout resid_dropout_;
};

// Two linear layers with GELU between them; the hidden layer has 4 n_embd features: [.., n_embd] -> [.., n_embd].
class GPTMlp : public Module {
 public:
  explicit GPTMlp(const GPTOptions& options);
  Tensor forward(const Tensor& x) override { return dropout_(c_proj_(gelu(c_fc_(x)))); }

 private:
  Linear c_fc_, c_proj_;
  Dropout dropout_;
};

// y = x + attn(ln_1(x)); returns y + mlp(ln_2(y)): [N, T, n_embd] -> [N, T, n_embd].
class GPTBlock : public Module {
 public:
  explicit GPTBlock(const GPTOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  LayerNorm ln_1_;
  CausalSelfAttention attn_;
  LayerNorm ln_2_;
  GPTMlp mlp_;
};

// A GPT without its last layer: i64 [N, T] -> [N, T, n_embd].
class GPTBody : public Module {
 public:
  explicit GPTBody(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override;

 private:
  Embedding wte_, wpe_;
  DType dtype_;
  Dropout drop_;
  ModuleList<GPTBlock> h_;
  LayerNorm ln_f_;
};

// A language model like GPT-2 (Radford et al. 2019), i64 [N, T] -> logits [N, T, vocab_size]: learned positions,
// pre-norm blocks, and a final layer norm. Parameters are named as in nanoGPT: transformer.wte.weight,
// transformer.h.0.attn.c_attn.weight, ..., lm_head.weight, which is not tied to wte. GPT-2 starts with Normal(0.02).
// Throws if n_head does not divide n_embd, and in forward() if T is 0 or above block_size.
class GPT : public Module {
 public:
  explicit GPT(const GPTOptions& options);
  Tensor forward(const Tensor& ids) override { return lm_head_(transformer_(ids)); }

 private:
  GPTBody transformer_;
  Linear lm_head_;
};

struct LstmLanguageModelOptions {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_dim = 128;
  std::int64_t hidden_size = 256;
  std::int64_t num_layers = 2;
  double dropout = 0.2;
  // Embeddings are cast to this type, and all later layers compute in it: f32, or bf16 or f16 with f32 weights.
  DType dtype = DType::f32;
};

// A language model of LSTM layers: i64 [N, T] -> logits [N, T, vocab_size]. Parameters are named as in PyTorch's
// example word_language_model: encoder.weight, rnn.weight_ih_l0, ..., decoder.weight, decoder.bias.
class LstmLanguageModel : public Module {
 public:
  explicit LstmLanguageModel(const LstmLanguageModelOptions& options);
  // Starts from `state`. Returns the logits and the state for the next call.
  std::pair<Tensor, LstmState> forward(const Tensor& ids, const LstmState& state);
  // Starts from zeros. Returns only the logits.
  Tensor forward(const Tensor& ids) override { return forward(ids, LstmState{}).first; }
  using Module::operator();
  std::pair<Tensor, LstmState> operator()(const Tensor& ids, const LstmState& state) { return forward(ids, state); }

 private:
  DType dtype_;
  Embedding encoder_;
  Dropout drop_;
  LSTM rnn_;
  Linear decoder_;
};

}  // namespace lockstep
