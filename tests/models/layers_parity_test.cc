// Layers and small models compute what PyTorch's do from the same states, and their parameters have the same names
// and shapes: tests/parity/layers.json was written by tests/parity/layers_reference.py.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/own_layers.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/nn/activations.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/identity.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/nn/upsample.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/lbfgs.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"
#include "tests/models/layer_case.h"

namespace lockstep::testing {
namespace {

using In = CaseTensors;
using Case = LayerCase;

constexpr std::int64_t kVocabulary = 11, kContext = 6, kBatch = 4, kSteps = 12;

// As in the script.
Tensor tokens(std::int64_t step, const Shape& shape, Device device) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back((i * i + 3 * i + 5 * step) % kVocabulary);
  return Tensor::from(values, shape).to(device);
}

Tensor padding(std::int64_t samples, std::int64_t keys) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < samples * keys; ++i) mask.push_back(i % keys >= keys - i / keys);
  return Tensor::from(mask, {samples, keys});
}

Tensor causal(std::int64_t length) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < length * length; ++i) mask.push_back(i % length > i / length);
  return Tensor::from(mask, {length, length});
}

GPTOptions gpt_options() {
  return {.vocab_size = kVocabulary, .block_size = kContext, .n_layer = 2, .n_head = 2, .n_embd = 8, .dropout = 0};
}

LstmLanguageModelOptions lstm_options() {
  return {.vocab_size = kVocabulary, .embedding_dim = 4, .hidden_size = 5, .dropout = 0};
}

// A module whose output is one tensor. Null for another name.
Case simple_case_of(const std::string& name, Device device) {
  const auto sequence = [](const auto& append) {
    Case made = of_one<Sequential>();
    append(static_cast<Sequential&>(*made.module));
    return made;
  };
  if (name == "conv1d") {
    return of_one<Conv1d>(Conv1dLayerOptions{
        .in_channels = 4, .out_channels = 6, .kernel_size = 3, .stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  }
  if (name == "conv transpose 2d") {
    return of_one<ConvTranspose2d>(ConvTranspose2dLayerOptions{.in_channels = 4,
                                                               .out_channels = 6,
                                                               .kernel_size = 3,
                                                               .stride = 2,
                                                               .padding = 1,
                                                               .output_padding = 1,
                                                               .groups = 2});
  }
  if (name == "conv2d of a wide kernel") {
    return of_one<Conv2d>(ConvLayerOptions{.in_channels = 4,
                                           .out_channels = 6,
                                           .kernel_size = {1, 3},
                                           .stride = {2, 1},
                                           .padding = {0, 2},
                                           .dilation = {1, 2},
                                           .groups = 2});
  }
  if (name == "conv transpose 2d of a wide kernel") {
    return of_one<ConvTranspose2d>(ConvTranspose2dLayerOptions{.in_channels = 4,
                                                               .out_channels = 6,
                                                               .kernel_size = {2, 3},
                                                               .stride = {3, 2},
                                                               .padding = {0, 1},
                                                               .output_padding = {2, 1},
                                                               .groups = 2,
                                                               .dilation = {1, 2}});
  }
  if (name == "pooling of sequences") {
    return sequence([](Sequential& net) {
      net.append(MaxPool1d({.kernel_size = 3, .stride = 1})).append<AvgPool1d>();
      net.append(AvgPool1d({.kernel_size = 3, .stride = 2, .padding = 1}));
    });
  }
  if (name == "adaptive avg pool 2d") return of_one<AdaptiveAvgPool2d>(std::array<std::int64_t, 2>{2, 3});
  if (name == "upsample") {
    return of_one<Upsample>(InterpolateOptions{.scale_factor = 2, .mode = Interpolation::bilinear});
  }
  if (name == "upsample to the nearest") {
    return sequence([](Sequential& net) {
      net.append(Upsample({.scale_factor = 2.5})).append(Upsample({.size = std::array<std::int64_t, 2>{4, 9}}));
    });
  }
  if (name == "unflatten and flatten") {
    return sequence([](Sequential& net) { net.append<Unflatten>(1, Shape{2, 3}).append<Flatten>(2, 3); });
  }
  if (name == "rms norm") {
    return sequence([](Sequential& net) {
      net.append(RMSNorm({.normalized_shape = {4}})).append(RMSNorm({.normalized_shape = {3, 4}, .eps = 0.1}));
    });
  }
  if (name == "layer norm") return of_one<LayerNorm>(LayerNormOptions{.normalized_shape = {3, 4}});
  if (name == "layer norm without a bias") {
    return of_one<LayerNorm>(LayerNormOptions{.normalized_shape = {3, 4}, .bias = false});
  }
  if (name == "group norm") return of_one<GroupNorm>(GroupNormOptions{.num_groups = 3, .num_channels = 6});
  if (name == "embedding" || name == "embedding with padding") {
    EmbeddingOptions options{.num_embeddings = kVocabulary, .embedding_dim = 3};
    if (name != "embedding") options.padding_idx = -2;
    const Tensor ids = tokens(0, {2, 5}, device);
    return make_case<Embedding>([=](Embedding& m, const In&) { return In{m(ids)}; }, options);
  }
  if (name == "activations") {
    return sequence([](Sequential& net) {
      net.append(LeakyReLU(0.2)).append(ELU(0.7)).append(SiLU()).append(Softplus(2, 1)).append(GELU());
      net.append(GELU({.approximate = GeluApproximation::tanh})).append(Identity()).append(LogSoftmax(1));
    });
  }
  if (name == "more activations") {
    return sequence([](Sequential& net) { net.append(ReLU()).append(Tanh()).append(Softmax(-1)).append(Sigmoid()); });
  }
  if (name == "SwiGLU") return of_one<own_layers::SwiGLU>(3, 5);
  if (name == "Highway") return of_one<own_layers::Highway>(3);
  if (name == "SqueezeExcite") return of_one<own_layers::SqueezeExcite>(4, 2);
  return {};
}

// The second output is that of the running statistics.
Case batch_norm_of(const BatchNorm1dOptions& options) {
  return make_case<BatchNorm1d>(
      [](BatchNorm1d& m, const In& in) {
        In outputs{m(in[0])};
        m.eval();
        outputs.push_back(m(in[0]));
        return outputs;
      },
      options);
}

Case case_of(const std::string& name, Device device) {
  if (name == "batch norm 1d") return batch_norm_of({});
  if (name == "batch norm 1d of sequences") return batch_norm_of({.channels = 3, .eps = 1e-3, .momentum = 0.2});
  if (Case made = simple_case_of(name, device); made.module) return made;
  using Attention = MultiheadAttention;
  const auto lstm = [](const LstmOutput& all) { return In{all.output, all.state.h, all.state.c}; };
  const auto run_lstm = [=](LSTM& m, const In& in) {
    return lstm(in.size() == 1 ? m(in[0]) : m(in[0], {in[1], in[2]}));
  };
  const auto run_gru = [](GRU& m, const In& in) {
    const GruOutput all = in.size() == 1 ? m(in[0]) : m(in[0], in[1]);
    return In{all.output, all.h};
  };
  if (name == "multihead attention") {
    return make_case<Attention>(
        [](Attention& m, const In& in) {
          auto [y, weights] = m(in[0], in[1], in[2]);
          return In{y, weights};
        },
        MultiheadAttentionOptions{.embed_dim = 8, .num_heads = 2});
  }
  if (name == "multihead attention with masks") {
    return make_case<Attention>(
        [](Attention& m, const In& in) {
          auto [y, weights] = m(in[0], in[1], in[2], {.key_padding_mask = padding(2, 3), .attn_mask = in[3]});
          return In{y, weights};
        },
        MultiheadAttentionOptions{.embed_dim = 8, .num_heads = 2, .batch_first = true});
  }
  if (name == "multihead attention with a mask for each head") {
    return make_case<Attention>(
        [](Attention& m, const In& in) {
          auto [y, weights] = m(in[0], in[0], in[0], {.attn_mask = in[1]});
          return In{y, weights};
        },
        MultiheadAttentionOptions{.embed_dim = 8, .num_heads = 2, .bias = false});
  }
  if (name == "causal multihead attention") {
    return make_case<Attention>(
        [](Attention& m, const In& in) { return In{m.attend(in[0], in[0], in[0], {.is_causal = true})}; },
        MultiheadAttentionOptions{.embed_dim = 8, .num_heads = 4});
  }
  TransformerEncoderLayerOptions layer{.d_model = 8, .nhead = 2, .dim_feedforward = 12, .dropout = 0};
  if (name == "transformer encoder layer") return of_one<TransformerEncoderLayer>(layer);
  if (name == "transformer encoder layer, norm first") {
    layer.activation = gelu, layer.batch_first = true, layer.norm_first = true;
    return make_case<TransformerEncoderLayer>(
        [](TransformerEncoderLayer& m, const In& in) {
          return In{m(in[0], {.src_mask = causal(4), .src_key_padding_mask = padding(2, 4)})};
        },
        layer);
  }
  RecurrentOptions recurrent{.input_size = 3, .hidden_size = 4};
  if (name == "lstm") return make_case<LSTM>(run_lstm, recurrent);
  if (name == "gru") return make_case<GRU>(run_gru, recurrent);
  if (name == "gru, batch first, no bias") {
    recurrent.bias = false, recurrent.batch_first = true;
    return make_case<GRU>(run_gru, recurrent);
  }
  recurrent.num_layers = 2;
  if (name == "lstm, batch first, no bias") {
    recurrent.bias = false, recurrent.batch_first = true;
    return make_case<LSTM>(run_lstm, recurrent);
  }
  recurrent.bidirectional = true;
  if (name == "lstm in both directions") return make_case<LSTM>(run_lstm, recurrent);
  if (name == "gru in both directions") return make_case<GRU>(run_gru, recurrent);
  const Tensor ids = tokens(0, {3, kContext}, device);
  if (name == "gpt") return make_case<GPT>([=](GPT& m, const In&) { return In{m(ids)}; }, gpt_options());
  check(name == "lstm language model", "no case {}", name);
  return make_case<LstmLanguageModel>([=](LstmLanguageModel& m, const In&) { return In{m(ids)}; }, lstm_options());
}

nlohmann::json read_json(const char* path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

nlohmann::json expected() { return read_json(LOCKSTEP_LAYERS_FILE); }

Shape shape_of(const nlohmann::json& item) { return Shape(item.at("shape").get<std::vector<std::int64_t>>()); }

// Names and shapes have to be those of the module.
void load(Module& module, const nlohmann::json& state, const std::vector<Device>& devices) {
  module.initialize(Constant{0}, devices);
  StateDict values;
  for (const auto& [name, item] : state.items()) {
    const DType dtype = name.ends_with("num_batches_tracked") ? DType::i64 : DType::f32;
    values.emplace_back(name,
                        Tensor::from(item.at("values").get<std::vector<float>>(), shape_of(item), {.dtype = dtype}));
  }
  load_state_dict(module, values);
}

// The outputs, and the gradients of inputs and parameters.
void expect_as_pytorch(const Case& made, const nlohmann::json& item, const Runtime& runtime, double tolerance) {
  const Device device = runtime.devices()[0];
  load(*made.module, item.at("state"), runtime.devices());
  In inputs;
  for (const auto& input : item.at("inputs")) {
    inputs.push_back(as_leaf(make_tensor(input.at("values"), shape_of(input), device)));
  }
  const In outputs = made.run(inputs);
  ASSERT_EQ(outputs.size(), item.at("outputs").size());
  In seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto& output = item.at("outputs").at(i);
    EXPECT_EQ(outputs[i].shape(), shape_of(output));
    EXPECT_LT(distance(values(outputs[i]), output.at("values")), tolerance) << "output " << i;
    std::vector<double> weights;
    for (std::int64_t k = 0; k < outputs[i].numel(); ++k) weights.push_back(static_cast<double>(k * 7 % 11 - 5) / 5);
    seeds.push_back(make_tensor(weights, outputs[i].shape(), device));
  }
  backward(outputs, seeds);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(distance(values(inputs[i].grad()), item.at("input_gradients").at(i)), tolerance) << "input " << i;
  }
  std::vector<std::string> names;
  for (const auto& [parameter_name, parameter] : made.module->named_parameters()) {
    EXPECT_LT(distance(values(parameter.gradient()), item.at("gradients").at(parameter_name)), tolerance)
        << parameter_name;
    names.push_back(parameter_name);
  }
  EXPECT_EQ(names.size(), item.at("gradients").size());
}

void expect_as_pytorch(const Runtime& runtime, double tolerance) {
  const nlohmann::json all = expected();
  EXPECT_EQ(all.at("cases").size(), 36U);
  for (const auto& [name, item] : all.at("cases").items()) {
    SCOPED_TRACE(name);
    expect_as_pytorch(case_of(name, runtime.devices()[0]), item, runtime, tolerance);
  }
  const nlohmann::json printed = read_json(LOCKSTEP_PRINTED_LAYERS_FILE);
  const auto makers = printed_layers();
  EXPECT_EQ(printed.at("cases").size(), makers.size());
  for (const auto& [name, item] : printed.at("cases").items()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(makers.contains(name));
    const Case made = makers.at(name)();
    EXPECT_EQ(made.module->str(), item.at("str").get<std::string>());
    expect_as_pytorch(made, item, runtime, tolerance);
  }
}

TEST(LayersParity, Reference) { expect_as_pytorch(Runtime({.serial = true, .reference_backend = true}), 1e-5); }
TEST(LayersParity, Cpu) { expect_as_pytorch(Runtime({.serial = true}), 1e-5); }

// The same numbers come from the same keys, so an initializer is known by the one that it stands for.
TEST(LayersParity, InitializersDrawFromPyTorchsDistributions) {
  const double tanh = 5.0 / 3;
  const KaimingOptions out{.a = 0.2, .mode = FanMode::fan_out};
  const std::map<std::string, Initializer> initializers{{"xavier_uniform", XavierUniform()},
                                                        {"xavier_uniform for tanh", XavierUniform(tanh)},
                                                        {"xavier_normal", XavierNormal()},
                                                        {"xavier_normal for tanh", XavierNormal(tanh)},
                                                        {"kaiming_uniform", KaimingUniform()},
                                                        {"kaiming_uniform, fan_out, 0.2", KaimingUniform(out)},
                                                        {"kaiming_normal", KaimingNormal()},
                                                        {"kaiming_normal, fan_out, 0.2", KaimingNormal(out)},
                                                        {"layers", KaimingUniform({.a = std::sqrt(5.0)})}};
  Runtime runtime({.serial = true});
  const auto drawn = [&](const Initializer& initializer, const Shape& shape) {
    Parameter parameter({.shape = shape});
    parameter.initialize("weight", runtime.devices(), initializer, 3);
    return values(parameter.host_data().to(runtime.devices()[0]));
  };
  const nlohmann::json all = expected();
  EXPECT_EQ(all.at("initializers").size(), 2 * initializers.size());
  for (const auto& [name, item] : all.at("initializers").items()) {
    SCOPED_TRACE(name);
    const double first = item.at("arguments").at(0), second = item.at("arguments").at(1);
    Initializer same = Normal(second, first);
    if (item.at("distribution") == "uniform") same = Uniform(first, second);
    const Initializer& ours = initializers.at(name.substr(0, name.find(" of ")));
    EXPECT_LT(distance(drawn(ours, shape_of(item)), drawn(same, shape_of(item))), 1e-6);
  }
}

TEST(LayersParity, LossesOfTwelveStepsFollowPyTorch) {
  const nlohmann::json all = expected();
  for (const auto& [name, item] : all.at("training").items()) {
    SCOPED_TRACE(name);
    Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
    std::unique_ptr<Module> net;
    if (name == "gpt") {
      net = std::make_unique<GPT>(gpt_options());
    } else {
      net = std::make_unique<LstmLanguageModel>(lstm_options());
    }
    load(*net, item.at("state"), runtime.devices());
    std::unique_ptr<Optimizer> optimizer =
        std::make_unique<AdamW>(net->parameters(), AdamWOptions{.lr = 1e-2, .weight_decay = 1e-2});
    if (name.ends_with("rmsprop")) {
      optimizer = std::make_unique<RMSprop>(
          net->parameters(),
          RMSpropOptions{
              .lr = 1e-3, .alpha = 0.9, .eps = 1e-6, .weight_decay = 1e-2, .momentum = 0.5, .centered = true});
    }
    const bool maximized = name.ends_with("maximized");
    if (maximized) {
      optimizer =
          std::make_unique<Sgd>(net->parameters(), SgdOptions{.lr = 0.2, .momentum = 0.9, .weight_decay = 1e-2});
    }
    const std::vector<double> losses = item.at("losses");
    ASSERT_EQ(std::ssize(losses), kSteps);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const Tensor ids = tokens(step, {kBatch, kContext + 1}, runtime.devices()[0]);
      const Tensor x = narrow(ids, 1, 0, kContext), labels = narrow(ids, 1, 1, kContext);
      const Tensor loss = cross_entropy(flatten((*net)(x), 0, 1), flatten(labels));
      // PyTorch maximizes -loss there.
      const Tensor objective = -loss;
      maximized ? (-objective).backward() : loss.backward();
      optimizer->step();
      EXPECT_NEAR(loss.item<float>(), losses[static_cast<std::size_t>(step)], 2e-4) << "step " << step;
    }
  }
}

// In f64: losses before each step, the numbers of evaluations, and the last weights.
TEST(LayersParity, LbfgsFollowsPyTorch) {
  const std::map<std::string, LBFGSOptions> options{
      {"no search", {.lr = 0.5, .max_iter = 6}},
      {"a short history", {.lr = 0.8, .max_iter = 5, .history_size = 2}},
      {"strong_wolfe", {.max_iter = 5, .line_search = LineSearch::strong_wolfe}},
      {"strong_wolfe, few evaluations",
       {.lr = 3, .max_iter = 12, .max_eval = 7, .line_search = LineSearch::strong_wolfe}},
      {"until it changes little",
       {.max_iter = 100, .tolerance_change = 3e-3, .line_search = LineSearch::strong_wolfe}}};
  const nlohmann::json all = expected();
  EXPECT_EQ(all.at("lbfgs").size(), options.size());
  for (const auto& [name, item] : all.at("lbfgs").items()) {
    SCOPED_TRACE(name);
    Runtime runtime({.serial = true, .reference_backend = true});
    Sequential net(Linear(2, 4), Tanh(), Linear(4, 1));
    load(net, item.at("state"), runtime.devices());
    net.to(DType::f64);
    const Tensor x = make_tensor(item.at("x"), {16, 2}, runtime.devices()[0], DType::f64);
    const Tensor y = make_tensor(item.at("y"), {16, 1}, runtime.devices()[0], DType::f64);
    LBFGS lbfgs(net.parameters(), options.at(name));
    for (std::size_t step = 0; step < item.at("losses").size(); ++step) {
      const Tensor before = lbfgs.step([&] {
        Tensor loss = mse_loss(net(x), y);
        loss.backward();
        return loss;
      });
      const double loss = item.at("losses").at(step);
      EXPECT_NEAR(before.item(), loss, 1e-6 * loss + 1e-12) << "step " << step;
      EXPECT_EQ(lbfgs.evaluations(), item.at("evaluations").at(step).get<std::int64_t>()) << "step " << step;
    }
    for (const auto& [parameter_name, parameter] : net.named_parameters()) {
      EXPECT_LT(distance(values(parameter.host_data()), item.at("weights").at(parameter_name).at("values")), 1e-5)
          << parameter_name;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
