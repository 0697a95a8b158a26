// The layers of PRINTED in tests/parity/layers_reference.py.
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_dict.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/padding.h"
#include "lockstep/nn/parameter_list.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/unfold.h"
#include "lockstep/nn/upsample.h"
#include "tests/models/layer_case.h"

namespace lockstep::testing {
namespace {

// The output of each layer, for the same input.
template <typename... Layers>
LayerCase each(Layers&&... layers) {
  LayerCase made = make_case<Sequential>([](Sequential& net, const CaseTensors& in) {
    CaseTensors outputs;
    for (std::size_t i = 0; i < net.size(); ++i) outputs.push_back(net[i](in[0] * 4.0));
    return outputs;
  });
  auto& net = static_cast<Sequential&>(*made.module);
  (net.append(std::forward<Layers>(layers)), ...);
  return made;
}

// Parameters in containers.
struct Params : Module {
  ParameterList& rows = make<ParameterList>("rows");
  ParameterDict& more = make<ParameterDict>("more");
  ModuleDict<> layers;
  Params() {
    rows.append({.shape = {3}});
    rows.append({.shape = {2, 3}});
    more.append("left", {.shape = {3}});
    layers.append<Linear>("a", {.in_features = 3, .out_features = 3});
    layers.append("act", Tanh());
    layers.append("b", std::make_shared<Linear>(LinearOptions{.in_features = 3, .out_features = 2}));
    add("layers", layers);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = layers["act"](layers["a"](x * rows[0] + more["left"]));
    return layers["b"](y + rows[1]);
  }
};

using Makers = std::map<std::string, std::function<LayerCase()>>;

Makers activations() {
  return {
      {"gates and their limits",
       [] {
         return each(GLU(), GLU(1), Hardtanh(), Hardtanh(-2, 0.5), ReLU6(), Hardsigmoid(), Hardswish(), Hardshrink(),
                     Softshrink(1.5), Threshold(0.5, -20));
       }},
      {"curves",
       [] { return each(SELU(), CELU(), CELU(0.5), Mish(), LogSigmoid(), Softsign(), Softmin(), Tanhshrink()); }},
      {"prelu", [] { return each(PReLU(), PReLU({.num_parameters = 4})); }},
  };
}

Makers windows() {
  const ConvLayerOptions wide{.in_channels = 2, .out_channels = 3, .kernel_size = 3};
  const Conv1dLayerOptions longer{.in_channels = 2, .out_channels = 3, .kernel_size = 4, .padding = kSame};
  const auto with = [](auto options, auto change) {
    change(options);
    return options;
  };
  return {
      {"paddings of sequences",
       [] {
         return each(ReflectionPad1d(2), ReflectionPad1d({0, 3}), ReplicationPad1d({5, 1}), ConstantPad1d({1, 2}, 3.5));
       }},
      {"paddings of images",
       [] {
         return each(ReflectionPad2d(1), ReflectionPad2d({1, 2, 0, 3}), ReplicationPad2d({2, 0, 1, 5}), ZeroPad2d(2),
                     ZeroPad2d({0, 1, 2, -1}), ConstantPad2d({1, 2, 0, 1}, -2));
       }},
      {"paddings of an image", [] { return each(ReflectionPad2d(1), ZeroPad2d(1)); }},
      {"convolutions of one size",
       [=] {
         return each(Conv2d(with(wide, [](auto& o) { o.padding = kSame; })),
                     Conv2d({.in_channels = 2,
                             .out_channels = 3,
                             .kernel_size = {2, 4},
                             .padding = kSame,
                             .dilation = {3, 1},
                             .bias = false}),
                     Conv2d({.in_channels = 2,
                             .out_channels = 3,
                             .kernel_size = {4, 3},
                             .padding = kSame,
                             .padding_mode = PadMode::reflect}));
       }},
      {"convolutions of sequences of one size",
       [=] { return each(Conv1d(longer), Conv1d(with(longer, [](auto& o) { o.padding_mode = PadMode::circular; }))); }},
      {"convolutions with padding",
       [=] {
         return each(Conv2d(with(wide,
                                 [](auto& o) {
                                   o.stride = 2, o.padding = {1, 2}, o.padding_mode = PadMode::reflect;
                                 })),
                     Conv2d(with(wide, [](auto& o) { o.padding = 2, o.padding_mode = PadMode::circular; })),
                     Conv2d(with(wide, [](auto& o) { o.padding = 3, o.padding_mode = PadMode::replicate; })),
                     Conv2d(wide));
       }},
      {"convolutions of one image",
       [=] {
         return each(Conv2d(wide),
                     ConvTranspose2d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .stride = 2}), MaxPool2d(),
                     AvgPool2d(), AdaptiveAvgPool2d(2),
                     Conv2d(with(wide, [](auto& o) { o.padding = 1, o.padding_mode = PadMode::reflect; })));
       }},
      {"convolutions of one sequence",
       [=] {
         return each(Conv1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3}),
                     ConvTranspose1d({.in_channels = 2, .out_channels = 3, .kernel_size = 3, .stride = 2}), MaxPool1d(),
                     AvgPool1d(), AdaptiveAvgPool1d(2));
       }},
      {"transposed convolutions of sequences",
       [] {
         return each(
             ConvTranspose1d({.in_channels = 4,
                              .out_channels = 6,
                              .kernel_size = 3,
                              .stride = 2,
                              .padding = 1,
                              .output_padding = 1,
                              .groups = 2}),
             ConvTranspose1d(
                 {.in_channels = 4, .out_channels = 2, .kernel_size = 2, .stride = 3, .bias = false, .dilation = 2}));
       }},
      {"convolutions of volumes",
       [] {
         return each(Conv3d({.in_channels = 2, .out_channels = 3, .kernel_size = 2}), Conv3d({.in_channels = 2,
                                                                                              .out_channels = 4,
                                                                                              .kernel_size = {3, 2, 1},
                                                                                              .stride = {2, 1, 2},
                                                                                              .padding = {2, 0, 1},
                                                                                              .dilation = {2, 1, 1},
                                                                                              .groups = 2,
                                                                                              .bias = false}));
       }},
      {"convolutions of one volume",
       [] { return each(Conv3d({.in_channels = 2, .out_channels = 3, .kernel_size = 2})); }},
      {"dilated max pooling",
       [] {
         return each(MaxPool2d({.kernel_size = 2, .stride = 1, .dilation = 2}),
                     MaxPool2d({.kernel_size = {2, 3}, .stride = 2, .padding = 1, .dilation = {1, 2}}),
                     MaxPool2d({.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true, .dilation = 2}));
       }},
      {"dilated max pooling of sequences",
       [] { return each(MaxPool1d({.kernel_size = 3, .stride = 2, .padding = 1, .dilation = 2})); }},
      {"adaptive pooling",
       [] {
         return each(AdaptiveMaxPool2d({2, 3}), AdaptiveMaxPool2d(3), AdaptiveMaxPool2d(1));
       }},
      {"adaptive pooling of sequences",
       [] { return each(AdaptiveMaxPool1d(3), AdaptiveMaxPool1d(4), AdaptiveAvgPool1d(3), AdaptiveAvgPool1d(1)); }},
  };
}

using In = CaseTensors;

// Two steps of training, and the running statistics.
template <typename... Norms>
LayerCase steps_and_test(Norms&&... norms) {
  LayerCase made = make_case<Sequential>([](Sequential& net, const In& in) {
    In outputs;
    for (std::size_t i = 0; i < net.size(); ++i) {
      outputs.push_back(net[i](in[0]));
      outputs.push_back(net[i](in[0] * 2.0 + 1.0));
      net[i].eval();
      outputs.push_back(net[i](in[0]));
    }
    return outputs;
  });
  auto& net = static_cast<Sequential&>(*made.module);
  (net.append(std::forward<Norms>(norms)), ...);
  return made;
}

Makers norms() {
  return {
      {"batch norms",
       [] {
         return steps_and_test(
             BatchNorm2d({.channels = 3, .affine = false}), BatchNorm2d({.channels = 3, .track_running_stats = false}),
             BatchNorm2d({.channels = 3, .momentum = std::nullopt}),
             BatchNorm2d({.channels = 3, .eps = 1e-3, .affine = false, .track_running_stats = false}));
       }},
      {"batch norms of features",
       [] {
         return steps_and_test(BatchNorm1d({.channels = 3, .affine = false}),
                               BatchNorm1d({.channels = 3, .momentum = std::nullopt}));
       }},
      {"batch norm of volumes", [] { return steps_and_test(BatchNorm3d({.channels = 3})); }},
      {"instance norms",
       [] {
         return each(InstanceNorm2d({.num_features = 3}),
                     InstanceNorm2d({.num_features = 3, .eps = 1e-2, .affine = true}));
       }},
      {"instance norms of one sequence", [] { return each(InstanceNorm1d({.num_features = 3, .affine = true})); }},
      {"instance norms with running statistics",
       [] {
         return steps_and_test(
             InstanceNorm2d({.num_features = 3, .track_running_stats = true}),
             InstanceNorm2d(
                 {.num_features = 3, .eps = 1e-2, .momentum = 0.3, .affine = true, .track_running_stats = true}));
       }},
      {"bags",
       [] {
         return make_case<EmbeddingBag>(
             [](EmbeddingBag& m, const In&) {
               const auto tokens = [](std::int64_t step, const Shape& shape) {
                 std::vector<std::int64_t> numbers;
                 for (std::int64_t i = 0; i < 10; ++i) numbers.push_back((i * i + 3 * i + 5 * step) % 11);
                 return Tensor::from(numbers, shape);
               };
               return In{m(tokens(0, {2, 5})),
                         m(tokens(1, {10}), Tensor::from(std::vector<std::int64_t>{0, 4, 4}, {3}))};
             },
             EmbeddingBagLayerOptions{.num_embeddings = 11, .embedding_dim = 3, .padding_idx = 2});
       }},
      {"dropout of all or none", [] { return each(Dropout(1), Dropout2d(0), Dropout1d(0)); }},
  };
}

struct Cells : Module {
  LSTMCell& lstm = make<LSTMCell>("lstm", {.input_size = 3, .hidden_size = 4});
  GRUCell& gru = make<GRUCell>("gru", {.input_size = 3, .hidden_size = 4, .bias = false});
  RNNCell& rnn = make<RNNCell>("rnn", {.input_size = 3, .hidden_size = 4});
  RNNCell& with_relu = make<RNNCell>("relu", {.input_size = 3, .hidden_size = 4, .nonlinearity = Nonlinearity::relu});
};

Makers recurrent() {
  const auto lstm = [](LSTM& m, const In& in) {
    const LstmOutput all = in.size() > 1 ? m(in[0], {in[1], in[2]}) : m(in[0]);
    return In{all.output, all.state.h, all.state.c};
  };
  const auto rnn = [](RNN& m, const In& in) {
    const RnnOutput all = in.size() > 1 ? m(in[0], in[1]) : m(in[0]);
    return In{all.output, all.h};
  };
  const auto gru = [](GRU& m, const In& in) {
    const GruOutput all = m(in[0]);
    return In{all.output, all.h};
  };
  const auto cells = [](Cells& m, const In& in) {
    const LstmState state = m.lstm(in[0], {in[1], in[2]});
    return In{state.h,
              state.c,
              m.gru(in[0], in[1]),
              m.gru(in[0]),
              m.rnn(in[0], in[1]),
              m.with_relu(in[0], in[1]),
              m.rnn(in[0][0], in[1][0])};
  };
  return {
      {"rnn",
       [=] {
         return make_case<RNN>(rnn,
                               RNNOptions{.input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true});
       }},
      {"rnn of relu",
       [=] {
         return make_case<RNN>(rnn, RNNOptions{.input_size = 3,
                                               .hidden_size = 4,
                                               .nonlinearity = Nonlinearity::relu,
                                               .bias = false,
                                               .batch_first = true});
       }},
      {"cells", [=] { return make_case<Cells>(cells); }},
      {"lstm of one sequence",
       [=] {
         return make_case<LSTM>(
             lstm, RecurrentOptions{
                       .input_size = 3, .hidden_size = 4, .num_layers = 2, .batch_first = true, .bidirectional = true});
       }},
      {"lstm with projections",
       [=] {
         return make_case<LSTM>(
             lstm, RecurrentOptions{
                       .input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true, .proj_size = 2});
       }},
      {"lstm with projections, no bias",
       [=] {
         return make_case<LSTM>(
             lstm,
             RecurrentOptions{.input_size = 3, .hidden_size = 4, .bias = false, .batch_first = true, .proj_size = 3});
       }},
      {"gru of one sequence", [=] { return make_case<GRU>(gru, RecurrentOptions{.input_size = 3, .hidden_size = 4}); }},
  };
}

LayerCase of_function(std::function<In(const In&)> f) {
  return make_case<Identity>([f = std::move(f)](Identity&, const In& in) { return f(in); });
}

In losses_of_probabilities(const In& in) {
  const Tensor &x = in[0], &y = in[1], &w = in[2];
  const Tensor p = sigmoid(x), t = sigmoid(y), z = y.detach();
  return {binary_cross_entropy(p, t),
          binary_cross_entropy(p, t, {.weight = w.detach(), .reduction = Reduction::none}),
          gaussian_nll_loss(x, y, w * w),
          gaussian_nll_loss(x, y, square(narrow(w, 1, 0, 1)), {.full = true, .eps = 0.5, .reduction = Reduction::sum}),
          poisson_nll_loss(x, y),
          poisson_nll_loss(x * x, z * z * 4.0, {.log_input = false, .full = true, .reduction = Reduction::none})};
}

In losses_of_margins(const In& in) {
  const Tensor &x = in[0], &y = in[1], &z = in[2];
  const Tensor signs = Tensor::from(std::vector<float>{1, -1, 1}, {3}).to(x.device());
  const Tensor y_signs = sign(y.detach()), z_signs = sign(z.detach());
  return {triplet_margin_loss(x, y, z),
          triplet_margin_loss(x, y, z, {.margin = 2, .p = 1, .swap = true, .reduction = Reduction::none}),
          pairwise_distance(x, y, 2, 1e-6, true),
          margin_ranking_loss(x, y, z_signs, {.margin = 0.5}),
          cosine_embedding_loss(x, y, signs, {.margin = 0.1, .reduction = Reduction::none}),
          hinge_embedding_loss(x, y_signs),
          soft_margin_loss(x, y_signs, {.reduction = Reduction::sum})};
}

In losses_of_several_labels(const In& in) {
  const Tensor &x = in[0], &y = in[1];
  const auto on = [&](const Tensor& t) { return t.to(x.device()); };
  const Tensor labels = on(Tensor::from(std::vector<std::int64_t>{1, 3, 0}, {3})),
               several = on(Tensor::from(std::vector<std::int64_t>{3, 0, -1, 1, 0, -1, 2, 1, 1, 2, 3, 0}, {3, 4})),
               weight = on(Tensor::from(std::vector<float>{0.5, 1, 2, 0.25}, {4}));
  return {multilabel_soft_margin_loss(x, sigmoid(y)),
          multilabel_soft_margin_loss(x, sigmoid(y), {.weight = weight, .reduction = Reduction::none}),
          multilabel_margin_loss(x, several),
          multilabel_margin_loss(y[1], several[1]),
          multi_margin_loss(x, labels),
          multi_margin_loss(y, labels, {.p = 2, .margin = 0.5, .weight = weight, .reduction = Reduction::none})};
}

In ctc_losses(const In& in) {
  const Tensor x = log_softmax(in[0]);
  const auto numbers = [&](const std::vector<std::int64_t>& n, const Shape& shape) {
    return Tensor::from(n, shape).to(x.device());
  };
  const Tensor targets = numbers({1, 2, 2, 3, 1, 0}, {2, 3}), lengths = numbers({3, 2}, {2});
  return {ctc_loss(x, targets, numbers({6, 5}, {2}), lengths),
          ctc_loss(x, targets, numbers({6, 5}, {2}), lengths, {.blank = 4, .reduction = Reduction::sum}),
          ctc_loss(x, targets, numbers({4, 3}, {2}), lengths, {.reduction = Reduction::none}),
          ctc_loss(x, targets, numbers({3, 5}, {2}), lengths, {.reduction = Reduction::none, .zero_infinity = true})};
}

In places_of_the_largest(const In& in) {
  In places;
  for (const std::int64_t dilation : {1, 2}) {
    const Tensor found =
        max_pool2d_with_indices(in[0], {.kernel_size = 3, .stride = 2, .padding = 1, .dilation = dilation}).indices;
    places.push_back(cast(found, DType::f32) + sum(in[0]) * 0.0);
  }
  return places;
}

Makers losses_of_layers() {
  return {
      {"places of the largest", [] { return of_function(places_of_the_largest); }},
      {"losses of probabilities", [] { return of_function(losses_of_probabilities); }},
      {"losses of margins", [] { return of_function(losses_of_margins); }},
      {"losses of several labels", [] { return of_function(losses_of_several_labels); }},
      {"ctc losses", [] { return of_function(ctc_losses); }},
  };
}

// As in layers_parity_test.cc: the positions after each one, and the last n keys of sample n.
Tensor hidden(const Shape& shape, const std::function<bool(std::int64_t row, std::int64_t column)>& f) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < shape.numel(); ++i) mask.push_back(f(i / shape[1], i % shape[1]) ? 1 : 0);
  return Tensor::from(mask, shape);
}
Tensor later(std::int64_t length) {
  return hidden({length, length}, [](auto row, auto column) { return column > row; });
}

Makers transformers() {
  const TransformerEncoderLayerOptions layer{.d_model = 8, .nhead = 2, .dim_feedforward = 12, .dropout = 0};
  return {
      {"multihead attention of other keys",
       [] {
         return make_case<MultiheadAttention>(
             [](MultiheadAttention& m, const In& in) {
               auto [y, weights] = m(in[0], in[1], in[2]);
               return In{y, weights};
             },
             MultiheadAttentionOptions{.embed_dim = 8, .num_heads = 2, .kdim = 6, .vdim = 4});
       }},
      {"transformer encoder",
       [=] {
         return make_case<TransformerEncoder>(
             [](TransformerEncoder& m, const In& in) { return In{m(in[0], {.src_mask = later(4)})}; },
             TransformerEncoderOptions{.layer = layer, .num_layers = 2, .norm = true});
       }},
      {"transformer decoder",
       [=] {
         TransformerDecoderLayerOptions first = layer;
         first.batch_first = first.norm_first = true;
         return make_case<TransformerDecoder>(
             [](TransformerDecoder& m, const In& in) {
               const Tensor keys = hidden({2, 3}, [](auto row, auto column) { return column >= 3 - row; });
               return In{m(in[0], in[1], {.memory_key_padding_mask = keys, .tgt_is_causal = true})};
             },
             TransformerDecoderOptions{.layer = first, .num_layers = 2});
       }},
      {"transformer",
       [] {
         return make_case<Transformer>(
             [](Transformer& m, const In& in) { return In{m(in[0], in[1], {}, {.tgt_mask = later(3)})}; },
             TransformerOptions{.d_model = 8,
                                .nhead = 2,
                                .num_encoder_layers = 1,
                                .num_decoder_layers = 1,
                                .dim_feedforward = 12,
                                .dropout = 0});
       }},
  };
}

Makers images() {
  return {
      {"patches",
       [] {
         return each(Unfold({.kernel_size = 2}),
                     Unfold({.kernel_size = {2, 3}, .dilation = {2, 1}, .padding = {1, 2}, .stride = {1, 2}}));
       }},
      {"images of patches",
       [] {
         return each(Fold({4, 5}, {.kernel_size = {2, 3}, .dilation = {2, 1}, .padding = {1, 2}, .stride = {1, 2}}));
       }},
      {"pixels of channels", [] { return each(PixelShuffle(2), PixelUnshuffle(2)); }},
      {"cubes and areas",
       [] {
         const std::array<std::int64_t, 2> size{4, 9}, other{3, 7};
         return each(Upsample({.scale_factor = 1.7, .mode = Interpolation::bicubic}),
                     Upsample({.size = size, .mode = Interpolation::bicubic, .align_corners = true}),
                     Upsample({.size = other, .mode = Interpolation::area}));
       }},
  };
}

}  // namespace

Makers printed_layers() {
  Makers all{{"containers", [] { return of_one<Params>(); }}};
  for (Makers part : {activations(), windows(), norms(), recurrent(), losses_of_layers(), transformers(), images()})
    all.merge(part);
  return all;
}

}  // namespace lockstep::testing
