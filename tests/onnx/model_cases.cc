#include "tests/onnx/model_cases.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/models.h"
#include "lockstep/models/resnet.h"
#include "lockstep/models/table_mlp.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_of.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/padding.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/unfold.h"
#include "lockstep/nn/upsample.h"

namespace lockstep::testing {
namespace {

using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;

Tensor floats(const Shape& shape, std::uint64_t seed = 1) { return randn(shape, {.seed = seed}); }
Tensor numbers(const Shape& shape, std::int64_t end) { return randint(end, shape, {.seed = 2}); }

// The running statistics of a trained net.
void set_statistics(Module& model) {
  for (const auto& [name, buffer] : model.named_buffers()) {
    if (!buffer.shape_known() || !is_floating(buffer.dtype())) continue;
    buffer.set_data(rand(buffer.shape(), {.seed = 3}) + 0.5);
  }
}

// Several layers beside each other, each on the input.
struct Beside : Module {
  template <typename M>
  Beside& with(M layer) {
    add(std::to_string(layers_.size()), layers_.emplace_back(std::make_shared<M>(std::move(layer))));
    return *this;
  }
  const std::vector<std::shared_ptr<Module>>& layers() const { return layers_; }

 private:
  std::vector<std::shared_ptr<Module>> layers_;
};

class Cases {
 public:
  std::vector<OnnxCase> all;

  template <typename M>
  void model(std::string name, std::shared_ptr<M> net, const Tensor& example) {
    all.push_back({std::move(name), net, {example}, [net](In in) { return Out{(*net)(in[0])}; }});
  }
  void beside(std::string name, const Beside& layers, const Tensor& example) {
    auto holder = std::make_shared<Holder>(layers.layers());
    all.push_back({std::move(name), holder, {example}, [holder](In in) {
                     Out out;
                     for (const auto& layer : holder->layers) out.push_back((*layer)(in[0]));
                     return out;
                   }});
  }
  void function(std::string name, std::vector<Tensor> examples, const OnnxForward& f) {
    all.push_back({std::move(name), std::make_shared<Identity>(), std::move(examples), f});
  }

 private:
  struct Holder : Module {
    explicit Holder(std::vector<std::shared_ptr<Module>> all) : layers(std::move(all)) {
      for (std::size_t i = 0; i < layers.size(); ++i) add(std::to_string(i), layers[i]);
    }
    std::vector<std::shared_ptr<Module>> layers;
  };
};

void add_models(Cases& c, bool large) {
  c.model<Module>("mlp", mlp(10, {16}), floats({2, 1, 6, 6}));
  c.model<Module>("lenet", lenet(), floats({2, 1, 28, 28}));
  c.model("gpt",
          std::make_shared<GPT>(GPTOptions{
              .vocab_size = 11, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8, .tie_weights = true}),
          numbers({2, 6}, 11));
  c.model("lstm_language_model",
          std::make_shared<LstmLanguageModel>(
              LstmLanguageModelOptions{.vocab_size = 11, .embedding_dim = 6, .hidden_size = 5, .num_layers = 2}),
          numbers({2, 6}, 11));
  auto residual = std::make_shared<Sequential>();
  residual->append(Residual({.channels = 4, .stride = 2, .project = true})).append(Residual({.channels = 4}));
  residual->append(GlobalAvgPool2d()).append(Flatten()).append(Linear({.out_features = 3}));
  c.model("residual", residual, floats({2, 4, 6, 6}));
  c.model("table", std::make_shared<TableMlp>(TableMlpOptions{.numbers = 2, .vocabularies = {3, 5}, .classes = 2}),
          cat({floats({2, 2}), numbers({2, 2}, 3).to(DType::f32)}, 1));
  if (!large) return;
  c.model("resnet_basic", std::make_shared<ResNet>(ResNetOptions{.layers = {1, 1, 1, 1}, .num_classes = 5}),
          floats({2, 3, 32, 32}));
  c.model<Module>("resnet18_fashion", make_model("resnet18"), floats({2, 1, 28, 28}));
  c.model<Module>("resnet18_torchvision", torchvision::resnet18(), floats({2, 3, 64, 64}));
  c.model<Module>("resnet50_torchvision", torchvision::resnet50(), floats({2, 3, 224, 224}));
}

void add_activations(Cases& c) {
  Beside all;
  all.with(ReLU()).with(LeakyReLU(0.1)).with(ELU(0.7)).with(SiLU()).with(Softplus()).with(Softplus(2, 3)).with(GELU());
  all.with(GELU(GeluOptions{.approximate = GeluApproximation::tanh})).with(Sigmoid()).with(Tanh()).with(Softmax(1));
  all.with(LogSoftmax(-1)).with(GLU(1)).with(Hardtanh(-0.5, 0.7)).with(ReLU6()).with(Hardsigmoid()).with(Hardswish());
  all.with(PReLU(4)).with(SELU()).with(CELU(0.6)).with(Mish()).with(LogSigmoid()).with(Softsign()).with(Tanhshrink());
  all.with(Hardshrink(0.4)).with(Softshrink(0.4)).with(Threshold(0.1, 2)).with(Softmin(2)).with(Dropout(0.5));
  all.with(Identity()).with(Flatten()).with(Flatten(2)).with(Unflatten(1, {2, 2})).with(Dropout1d(0.5));
  c.beside("activations", all, floats({2, 4, 6}) * 3);
}

void add_images(Cases& c) {
  Beside all;
  all.with(Conv2d(
      {.out_channels = 6, .kernel_size = 3, .stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2}));
  all.with(Conv2d({.out_channels = 4, .kernel_size = 2, .padding = kSame, .bias = false}));
  all.with(ConvTranspose2d(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}));
  all.with(BatchNorm2d()).with(BatchNorm2d(BatchNorm2d::Options{.affine = false}));
  all.with(GroupNorm(2, 4)).with(InstanceNorm2d(4)).with(LayerNorm(Shape{7, 9})).with(RMSNorm(Shape{9}));
  all.with(MaxPool2d(2)).with(MaxPool2d({.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true}));
  all.with(MaxPool2d({.kernel_size = 2, .stride = 1, .dilation = 2}));
  all.with(AvgPool2d(3, 2, 1))
      .with(AvgPool2d({.kernel_size = 3, .stride = 2, .padding = 1, .count_include_pad = false}));
  all.with(AvgPool2d({.kernel_size = 2, .stride = 2, .padding = 1, .ceil_mode = true}))
      .with(LPPool2d(2, {.kernel_size = 2}));
  all.with(GlobalAvgPool2d())
      .with(AdaptiveAvgPool2d(3))
      .with(AdaptiveMaxPool2d({2, 4}))
      .with(AdaptiveAvgPool2d({7, 3}));
  all.with(ZeroPad2d({1, 0, 2, 0})).with(ReflectionPad2d(2)).with(ReplicationPad2d(1)).with(CircularPad2d(1));
  all.with(ConstantPad2d({1, -1, 0, 2}, 0.5)).with(Unfold(UnfoldOptions{.kernel_size = {2, 3}}));
  all.with(PixelShuffle(2)).with(Dropout2d(0.3));
  all.with(Upsample({.scale_factor = 2.0})).with(Upsample({.size = {{5, 12}}, .mode = Interpolation::bilinear}));
  all.with(Upsample({.scale_factor = 1.5, .mode = Interpolation::bicubic, .align_corners = true}));
  all.with(Upsample({.size = {{3, 4}}, .mode = Interpolation::area}));
  c.beside("images", all, floats({2, 4, 7, 9}));
  c.beside("unshuffle", Beside().with(PixelUnshuffle(2)), floats({2, 1, 4, 6}));
  c.beside("fold", Beside().with(Fold({4, 5}, {.kernel_size = 2, .stride = 1})), floats({2, 8, 12}));
}

void add_sequences(Cases& c) {
  Beside all;
  all.with(Conv1d({.out_channels = 6, .kernel_size = 3, .stride = 2, .padding = 1})).with(BatchNorm1d());
  all.with(ConvTranspose1d(4, 3, 3, {.stride = 2, .padding = 1, .output_padding = 1}));
  all.with(MaxPool1d(2)).with(AvgPool1d(3, 2, 1)).with(AdaptiveAvgPool1d(3)).with(AdaptiveMaxPool1d(2));
  all.with(ZeroPad1d(1))
      .with(ReflectionPad1d(2))
      .with(ReplicationPad1d(1))
      .with(CircularPad1d(2))
      .with(ConstantPad1d(1, 2.0));
  all.with(InstanceNorm1d(4)).with(Linear({.out_features = 5})).with(Linear({.out_features = 3, .bias = false}));
  c.beside("sequences", all, floats({2, 4, 8}));
  Beside volumes;
  volumes.with(Conv3d({.out_channels = 4, .kernel_size = {2, 3, 3}, .stride = {1, 2, 1}, .padding = 1}));
  volumes.with(BatchNorm3d()).with(MaxPool3d(2)).with(AvgPool3d(2)).with(AdaptiveAvgPool3d(2)).with(InstanceNorm3d(2));
  c.beside("volumes", volumes, floats({2, 2, 4, 5, 6}));
  Beside indices;
  indices.with(Embedding(9, 4)).with(EmbeddingBag(9, 4, {.padding_idx = 0}));
  indices.with(EmbeddingBag(9, 4, {.mode = BagMode::max}));
  c.beside("embeddings", indices, numbers({2, 5}, 9));
  c.beside("rows", Beside().with(BatchNorm1d()).with(Linear({.out_features = 3})).with(LayerNorm(Shape{6})),
           floats({2, 6}));
}

void add_recurrent(Cases& c) {
  const Tensor x = floats({2, 4, 3});
  auto lstm = std::make_shared<LSTM>(3, 5, LSTM::Options{.num_layers = 2, .batch_first = true, .bidirectional = true});
  c.all.push_back({"lstm", lstm, {x}, [lstm](In in) {
                     const LstmOutput out = lstm->forward(lstm->placed(in[0]), {});
                     return Out{out.output, out.state.h, out.state.c};
                   }});
  auto projected = std::make_shared<LSTM>(3, 5, LSTM::Options{.batch_first = true, .proj_size = 2});
  c.all.push_back({"lstm_projection", projected, {x}, [projected](In in) {
                     const LstmOutput out = projected->forward(projected->placed(in[0]), {});
                     return Out{out.output, out.state.h, out.state.c};
                   }});
  auto gru = std::make_shared<GRU>(3, 5, GRU::Options{.bias = false});
  OnnxOptions time_first{.batch_axes = {1, 1}};
  c.all.push_back({"gru",
                   gru,
                   {floats({4, 2, 3}), floats({1, 2, 5})},
                   [gru](In in) {
                     const GruOutput out = gru->forward(gru->placed(in[0]), gru->placed(in[1]));
                     return Out{out.output, out.h};
                   },
                   time_first});
  auto rnn = std::make_shared<RNN>(3, 5, RNN::Options{.nonlinearity = Nonlinearity::relu, .batch_first = true});
  c.all.push_back({"rnn", rnn, {x}, [rnn](In in) { return Out{rnn->forward(rnn->placed(in[0]), {}).output}; }});
  auto cell = std::make_shared<LSTMCell>(3, 4);
  c.all.push_back({"lstm_cell", cell, {floats({2, 3}), floats({2, 4}, 5), floats({2, 4}, 6)}, [cell](In in) {
                     const LstmState s = cell->forward(cell->placed(in[0]), {cell->placed(in[1]), cell->placed(in[2])});
                     return Out{s.h, s.c};
                   }});
  auto gru_cell = std::make_shared<GRUCell>(3, 4);
  auto rnn_cell = std::make_shared<RNNCell>(3, 4);
  c.all.push_back({"gru_cell", gru_cell, {floats({2, 3})}, [gru_cell](In in) {
                     return Out{gru_cell->forward(gru_cell->placed(in[0]), {})};
                   }});
  c.all.push_back({"rnn_cell", rnn_cell, {floats({2, 3})}, [rnn_cell](In in) {
                     return Out{rnn_cell->forward(rnn_cell->placed(in[0]), {})};
                   }});
}

void add_attention(Cases& c) {
  auto attention = std::make_shared<MultiheadAttention>(6, 2, MultiheadAttention::Options{.batch_first = true});
  c.all.push_back({"attention", attention, {floats({2, 4, 6}), ge(rand({2, 4}, {.seed = 4}), 0.6)}, [attention](In in) {
                     const Tensor x = attention->placed(in[0]);
                     const auto [y, weights] = (*attention)(x, x, x, {.key_padding_mask = attention->placed(in[1])});
                     return Out{nan_to_num(y), nan_to_num(weights), attention->attend(x, x, x, {.is_causal = true})};
                   }});
  auto transformer = std::make_shared<Transformer>(6, 2,
                                                   Transformer::Options{.num_encoder_layers = 1,
                                                                        .num_decoder_layers = 1,
                                                                        .dim_feedforward = 8,
                                                                        .activation = gelu,
                                                                        .batch_first = true,
                                                                        .norm_first = true});
  c.all.push_back({"transformer", transformer, {floats({2, 4, 6}), floats({2, 3, 6}, 7)}, [transformer](In in) {
                     return Out{(*transformer)(transformer->placed(in[0]), transformer->placed(in[1]), {},
                                               {.tgt_is_causal = true})};
                   }});
}

void add_functions(Cases& c) {
  c.function("elementwise", {floats({2, 3, 4}), floats({2, 1, 4}, 8)}, [](In in) {
    const Tensor &x = in[0], &y = in[1], p = abs(x) + 0.5;
    return Out{x + y,
               x - y,
               x * y,
               x / (abs(y) + 1.0),
               maximum(x, y),
               minimum(x, y),
               pow(p, y),
               pow(p, 1.7),
               2.0 / p,
               pow(2.0, x),
               exp(x),
               log(p),
               log1p(p),
               expm1(x),
               log2(p),
               log10(p),
               sqrt(p),
               rsqrt(p),
               square(x),
               abs(x),
               sign(x),
               reciprocal(p),
               sin(x),
               cos(x),
               tan(x),
               erf(x),
               floor(x),
               ceil(x),
               round(x * 3.0),
               trunc(x * 3.0),
               -x,
               clamp(x, -0.5, 0.5),
               clamp(x, {}, 0.3),
               clamp(x, y, y + 1.0),
               div(x, p, {.rounding_mode = Rounding::floor}),
               div(x * 5.0, p, {.rounding_mode = Rounding::trunc}),
               remainder(x, p),
               remainder(x, 0.4),
               nan_to_num(log(x)),
               full_like(x, 3),
               clone(x)};
  });
  c.function("masks", {floats({2, 3, 4}), numbers({2, 3, 4}, 3)}, [](In in) {
    const Tensor &x = in[0], &n = in[1], a = gt(x, 0), b = le(x, 0.5);
    return Out{a,
               eq(n, 1),
               ne(x, x),
               ge(x, -0.5),
               logical_and(a, b),
               logical_or(a, b),
               logical_xor(a, b),
               logical_not(a),
               where(a, x, -x),
               where(b, x, 2.0),
               masked_fill(x, a, -1),
               any(a, 1),
               all(b, 2, true),
               a.to(DType::f32) * x,
               sum(a, 1),
               isnan(log(x)),
               isinf(x / 0.0),
               isfinite(log(x)),
               n.to(DType::f32),
               x.to(DType::i64),
               eq(a, b),
               div(n - 1, 2.0, {.rounding_mode = Rounding::floor}),
               remainder(n - 1, 2.0),
               n * 2.0 + 1.0,
               n < 0.5,
               n >= 1.5,
               eq(n, 1.5)};
  });
  c.function("reductions", {floats({2, 3, 4})}, [](In in) {
    const Tensor& x = in[0];
    const auto [values, indices] = max(x, 1);
    const auto [low, places] = min(x, -1, true);
    const auto [sorted, order] = sort(x, 1, true);
    const auto [most, which] = topk(x, 2, -1);
    return Out{sum(x, 1),
               sum(x, {1, 2}, true),
               mean(x, {1, 2}),
               var(x, 1),
               std(x, -1, {.keepdim = true}),
               amax(x, {1, 2}),
               amin(x, 1, true),
               values,
               indices,
               low,
               places,
               argmax(x, 2),
               logsumexp(x, 1),
               cumsum(x, 1),
               cumprod(x, 2),
               norm(x, 2, 1),
               norm(x, 1, {1, 2}),
               norm(x, 3, -1),
               prod(x, 1),
               sorted,
               order,
               most,
               which,
               median(x, 1).values,
               sum_to(x, {1, 4}),
               sum(x),
               softmax(x, 0),
               normalize(x),
               cosine_similarity(x, x + 1.0)};
  });
  c.function("shapes", {floats({2, 3, 4})}, [](In in) {
    const Tensor& x = in[0];
    const std::int64_t n = x.size(0);
    const auto parts = split(x, {1, 3}, 2);
    return Out{x.reshape({n, 12}),
               x.reshape({n * 3, 4}),
               x.reshape({4, n, 3}),
               permute(x, {2, 0, 1}),
               transpose(x, 1, 2),
               expand(unsqueeze(x, 1), {n, 2, 3, 4}),
               cat({x, x * 2.0}, 1),
               stack({x, x}, 0),
               narrow(x, 2, 1, 2),
               select(x, 1, -1),
               slice(x, 2, 0, {}, 2),
               parts[1],
               flip(x, {1, 2}),
               roll(x, 1, 2),
               pad(x, {1, 0, 0, 2}),
               triu(x),
               tril(x, -1),
               repeat(x, {1, 2, 1}),
               x[0],
               x.slice(0, 1),
               matmul(x, transpose(x, 1, 2)),
               einsum("nij,nkj->nik", {x, x}),
               cat({x, x}, 0),
               movedim(x, 0, 2),
               tile(x, {2}),
               pad(x, {1, 1}, PadMode::reflect),
               zeros({n, 2}) + sum(x, 1).narrow(1, 0, 2),
               flatten(x) * 2.0};
  });
  c.function("indices", {floats({2, 3, 4}), numbers({2, 3, 2}, 4), numbers({2, 5}, 6)}, [](In in) {
    const Tensor &x = in[0], &at = in[1], &n = in[2];
    return Out{take_along_dim(x, at, 2),
               gather(x, 2, at),
               index_select(x, 1, Tensor::from<std::int64_t>({2, 0}, {2})),
               embedding(n, Tensor::from<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {6, 2})),
               one_hot(n, 6),
               scatter(x, 2, narrow(at, 2, 0, 1), 7.0),
               scatter_add(x, 2, at, x),
               index_add(x, 1, Tensor::from<std::int64_t>({2, 2}, {2}), narrow(x, 1, 0, 2), 0.5),
               x.index({Slice(), 1, Slice(1, 3)})};
  });
  c.function("unpool", {floats({2, 3, 4, 6})}, [](In in) {
    const auto [y, places] = max_pool2d_with_indices(in[0], {.kernel_size = 2});
    return Out{max_unpool2d(y, places, {4, 6}), places};
  });
  c.function("grid", {floats({2, 3, 4, 6}), rand({2, 5, 5, 2}, {.seed = 9}) * 2.4 - 1.2},
             [](In in) { return Out{grid_sample(in[0], in[1])}; });
  c.function("bytes", {randint(256, {2, 5, 6, 3}, {.dtype = DType::u8, .seed = 10})}, [](In in) {
    const Tensor dark = lt(in[0], 100), x = in[0].to(DType::f32);
    return Out{permute(x, {0, 3, 1, 2}) / 255.0, where(in[0], x, -1.0), x * (in[0] != 0), dark};
  });
}

}  // namespace

std::vector<OnnxCase> onnx_cases(bool large) {
  Cases c;
  add_models(c, large);
  add_activations(c);
  add_images(c);
  add_sequences(c);
  add_recurrent(c);
  add_attention(c);
  add_functions(c);
  const NoGradGuard no_grad;
  for (OnnxCase& each : c.all) {
    each.model->eval();
    each.forward(each.examples);  // settles shapes
    set_statistics(*each.model);
  }
  return std::move(c.all);
}

}  // namespace lockstep::testing
