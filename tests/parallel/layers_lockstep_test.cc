// Models for sequences and for images on every layout, with dropout, clipping, and AdamW: the bits are those of one
// device.
#include <gtest/gtest.h>

#include "examples/llama.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/transformer.h"
#include "lockstep/optim/adam.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep::layers {
namespace {

constexpr std::int64_t kVocabulary = 9, kLength = 6;
constexpr int kShards = 8;
// Even over the shards; uneven; and so few that ranks have none.
const std::vector<std::int64_t> kBatches{16, 13, 2};

// Ids [N, kLength] -> logits [N, kLength, kVocabulary].
using Net = std::function<std::unique_ptr<Module>()>;

// Masks, states of both directions, weights that are returned, and steps on axis 0.
struct Reader : Module {
  Embedding embed{{.num_embeddings = kVocabulary, .embedding_dim = 8, .padding_idx = 0}};
  TransformerEncoderLayer encoder{
      {.d_model = 8, .nhead = 2, .dim_feedforward = 12, .activation = gelu, .batch_first = true}};
  MultiheadAttention attention{{.embed_dim = 8, .num_heads = 2, .dropout = 0.2}};
  GRU gru{{.hidden_size = 4, .num_layers = 2, .dropout = 0.2, .bidirectional = true}};
  LSTM lstm{{.hidden_size = 5, .bidirectional = true}};
  Conv1d conv{{.out_channels = kVocabulary, .kernel_size = 3, .padding = 1}};
  Reader() {
    add("embed", embed), add("encoder", encoder), add("attention", attention), add("gru", gru), add("lstm", lstm);
    add("conv", conv);
  }
  Tensor forward(const Tensor& ids) override {
    // Padding at the end: the first place is always there.
    const Tensor later = gt(cumsum(full_like(cast(ids, DType::f32), 1), 1), 3.5);
    const Tensor padding = where(later, eq(ids, 0.0), gt(ids, static_cast<double>(kVocabulary)));
    Tensor x = encoder(embed(ids), {.src_key_padding_mask = padding});
    x = transpose(x, 0, 1);  // [T, N, C]
    const auto [seen, weights] = attention(x, x, x, {.key_padding_mask = padding});
    const auto [output, h] = gru(x + seen);
    const auto [y, state] = lstm(output, {cat({h.narrow(0, 0, 2), h.narrow(0, 2, 2).narrow(2, 0, 1)}, 2), Tensor()});
    const Tensor scale = unsqueeze(mean(square(weights), {1, 2}), -1) + mean(square(state.c), 0) * 0.1;
    x = permute(y * mean(scale, 1, true), {1, 2, 0});  // [N, C, T]
    return transpose(conv(x), 1, 2);
  }
};

// Images made of embedded ids.
struct Painter : Module {
  Embedding embed{{.num_embeddings = kVocabulary, .embedding_dim = 24}};
  ConvTranspose2d up{{.out_channels = 4, .kernel_size = 3, .stride = 2, .padding = 1, .output_padding = 1}};
  Conv2d out{{.out_channels = kVocabulary, .kernel_size = 1}};
  Painter() { add("embed", embed), add("up", up), add("out", out); }
  Tensor forward(const Tensor& ids) override {
    Tensor x = unflatten(embed(ids), 2, {4, 6});                                           // [N, T, 4, 6]
    x = interpolate(silu(up(x)), {.scale_factor = 1.5, .mode = Interpolation::bilinear});  // [N, 4, 12, 18]
    x = interpolate(x, {.size = {{7, 11}}});
    x = out(adaptive_avg_pool2d(x, {2, 3}));  // [N, V, 2, 3]
    return transpose(flatten(x, 2), 1, 2);
  }
};

struct Trained {
  std::string weights;
  std::vector<float> losses;
  bool operator==(const Trained&) const = default;
};
void PrintTo(const Trained& o, std::ostream* os) {
  *os << o.weights.substr(0, 12);
  for (float loss : o.losses) *os << fmt::format(" {}", loss);
}

Trained steps_of(Module& net, const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& cut) {
  AdamW adam(net.parameters(), {.lr = 1e-2, .weight_decay = 1e-2});
  Trained outcome;
  for (std::size_t step = 0; step < kBatches.size(); ++step) {
    testing::Random random(step);
    std::vector<std::int64_t> ids, labels;
    for (std::int64_t i = 0; i < kBatches[step] * kLength; ++i) {
      ids.push_back(random.integer(0, kVocabulary - 1));
      labels.push_back(random.integer(-1, kVocabulary - 1));
    }
    const Shape shape{kBatches[step], kLength};
    const std::vector<Tensor> parts = cut({Tensor::from(ids, shape), Tensor::from(labels, shape)});
    const Tensor loss = cross_entropy(flatten(net(parts[0]), 0, 1), flatten(parts[1], 0, 1), {.ignore_index = -1});
    loss.backward();
    adam.clip_grad_norm(0.5);
    adam.step();
    outcome.losses.push_back(loss.item<float>());
  }
  outcome.weights = weights_sha256(net);
  return outcome;
}

Trained on_devices(const Net& make, int devices) {
  Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1});
  const auto net = make();
  net->initialize(Normal{0.2}, runtime.devices());
  return steps_of(*net, [&](const std::vector<Tensor>& whole) {
    std::vector<Tensor> parts;
    for (const Tensor& t : whole) parts.push_back(split_and_load(t, runtime.devices(), {.shards = kShards}));
    return parts;
  });
}

Trained on_rank(const Net& make, Rank& r) {
  const auto net = make();
  net->initialize(Normal{0.2}, r.runtime.devices());
  settle_shapes(*net, Tensor::from(std::vector<std::int64_t>(kLength), {1, kLength}), r.runtime.devices()[0]);
  DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = kShards}});
  return steps_of(*net, [&](const std::vector<Tensor>& whole) {
    const std::int64_t samples = whole[0].size(0);
    const auto [first, last] = ddp.rows_of(samples);
    std::vector<Tensor> rows;
    for (const Tensor& t : whole) rows.push_back(t.narrow(0, first, last - first));
    return ddp.split(rows, samples);
  });
}

struct Named {
  std::string name;
  Net make;
};
void PrintTo(const Named& net, std::ostream* os) { *os << net.name; }

class LayersLockstep : public ::testing::TestWithParam<Named> {};

TEST_P(LayersLockstep, TheBitsDoNotDependOnDevicesNorRanks) {
  const Net& make = GetParam().make;
  const Trained expected = on_devices(make, 1);
  for (const float loss : expected.losses) EXPECT_TRUE(std::isfinite(loss));
  for (int devices : {2, 3, 8}) EXPECT_EQ(on_devices(make, devices), expected) << devices << " devices";
  for (const auto& [world, devices] : {std::pair{2, 1}, {2, 2}}) {
    expect_fine(run_ranks(
        world, [&](Rank& r) { EXPECT_EQ(on_rank(make, r), expected) << "rank " << r.rank(); }, devices));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nets, LayersLockstep,
    ::testing::Values(Named{"Gpt",
                            [] {
                              return std::make_unique<GPT>(GPTOptions{
                                  .vocab_size = kVocabulary, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 8});
                            }},
                      Named{"LstmLanguageModel",
                            [] {
                              return std::make_unique<LstmLanguageModel>(LstmLanguageModelOptions{
                                  .vocab_size = kVocabulary, .embedding_dim = 4, .hidden_size = 5});
                            }},
                      Named{"Llama",
                            [] {
                              return std::make_unique<llama::Llama>(llama::LlamaOptions{.vocab_size = kVocabulary,
                                                                                        .dim = 8,
                                                                                        .hidden_dim = 12,
                                                                                        .n_layers = 2,
                                                                                        .n_heads = 4,
                                                                                        .n_kv_heads = 2});
                            }},
                      Named{"Reader", [] { return std::make_unique<Reader>(); }},
                      Named{"Painter", [] { return std::make_unique<Painter>(); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::layers
