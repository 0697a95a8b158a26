// Language models that compute in bf16 and f16. Their input is i64, so their options name the type.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/text.h"
#include "lockstep/models/gpt.h"
#include "lockstep/models/lstm_language_model.h"
#include "lockstep/optim/adam.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/trainer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/layouts.h"

namespace lockstep {
namespace {

struct LanguageRun {
  std::string model = "gpt";
  DType dtype = DType::f32;
  std::optional<DType> trainer_dtype = {};  // if it differs
  std::int64_t max_steps = 0;
  bool record = false;
  std::filesystem::path save = {}, resume = {};
};

std::unique_ptr<Module> language_model(const LanguageRun& run, std::int64_t characters) {
  if (run.model == "gpt") {
    return std::make_unique<GPT>(GPTOptions{
        .vocab_size = characters, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 16, .dtype = run.dtype});
  }
  return std::make_unique<LstmLanguageModel>(LstmLanguageModelOptions{
      .vocab_size = characters, .embedding_dim = 16, .hidden_size = 16, .num_layers = 2, .dtype = run.dtype});
}

struct LanguageResult {
  std::string hash, why_not_recorded;
  double first_loss = 0, last_loss = 0, perplexity = 0;
};

LanguageResult train_language_model(const LanguageRun& run, int devices = 1,
                                    const std::shared_ptr<ProcessGroup>& group = nullptr) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += "the cat sat on the mat and the dog ran. ";
  const CharacterSet characters(text);
  const auto windows = [&](std::string_view part) {
    return std::make_shared<TextDataset>(characters.encode(part), TextOptions{.context = 8});
  };
  Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1, .seed = 3});
  const std::unique_ptr<Module> model = language_model(run, characters.size());
  model->initialize(Normal{0.1}, runtime.devices(), {.seed = 3});
  AdamW optimizer(model->parameters(), {.lr = 0.02, .weight_decay = 0.1});
  const DType dtype = run.trainer_dtype.value_or(run.dtype);
  TrainerOptions options{
      .devices = runtime.devices(),
      .split = {.shards = 4},
      .batch_size = 8,
      .record_steps = run.record,
      .epochs = 4,
      .max_steps = run.max_steps,
      .seed = 3,
      .dtype = dtype,
      .loss_scaling = {.initial_scale = dtype == DType::f16 ? 1024.0 : LossScalerOptions().initial_scale},
      .loss = [](const Tensor& logits,
                 const Tensor& labels) { return cross_entropy(flatten(logits, 0, 1), flatten(labels, 0, 1)); },
      .metrics = {metrics::perplexity({.dim = -1})},
      .clip_norm = 1,
      .save_folder = run.save};
  if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
  Trainer trainer(*model, optimizer, windows(std::string_view(text).substr(0, 400)),
                  windows(std::string_view(text).substr(400)), options);
  if (!run.resume.empty()) trainer.resume(run.resume);
  LanguageResult result;
  trainer.on_epoch = [&](const EpochReport& report) {
    if (report.epoch == 1) result.first_loss = report.train_loss;
    result.last_loss = report.train_loss;
    result.perplexity = report.metrics.at(0).value;
  };
  trainer.train();
  for (const Parameter& p : model->parameters()) EXPECT_EQ(p.dtype(), DType::f32);
  result.hash = weights_sha256(*model);
  result.why_not_recorded = trainer.why_not_recorded();
  return result;
}

std::string hash_of(JobLayout layout, const LanguageRun& run) {
  return run_layout(layout, [&](int devices, const std::shared_ptr<ProcessGroup>& group) {
    return train_language_model(run, devices, group).hash;
  });
}

class LanguageModelDtype : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, LanguageModelDtype, ::testing::Values("gpt", "lstm"),
                         [](const auto& info) { return std::string(info.param); });

// Dropout, clipping, and AdamW; ranks exchange f32 sums.
TEST_P(LanguageModelDtype, Bf16HasOneHashOnAllLayouts) {
  const LanguageRun run{.model = GetParam(), .dtype = DType::bf16, .max_steps = 8};
  const std::string expected = hash_of({1, 1}, run);
  EXPECT_EQ(expected.size(), 64U) << expected;
  for (const JobLayout layout : {JobLayout{1, 2}, {1, 3}, {2, 1}, {2, 2}}) {
    EXPECT_EQ(hash_of(layout, run), expected) << ::testing::PrintToString(layout);
  }
  LanguageRun recorded = run;
  recorded.record = true;
  const LanguageResult repeated = train_language_model(recorded, 2);
  EXPECT_EQ(repeated.hash, expected);
  EXPECT_EQ(repeated.why_not_recorded, "");
}

TEST_P(LanguageModelDtype, Bf16GoesOnWhereItStopped) {
  TemporaryFolder folder;
  const LanguageRun whole{.model = GetParam(), .dtype = DType::bf16, .max_steps = 8};
  LanguageRun first = whole, second = whole;
  first.max_steps = 5;
  first.save = second.resume = folder.path();
  train_language_model(first, 2);
  EXPECT_EQ(hash_of({2, 1}, second), train_language_model(whole).hash);
}

TEST_P(LanguageModelDtype, HalfTypesLearnWhatF32Learns) {
  const LanguageResult f32 = train_language_model({.model = GetParam()});
  EXPECT_LT(f32.last_loss, 0.85 * f32.first_loss);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LanguageResult half = train_language_model({.model = GetParam(), .dtype = dtype});
    EXPECT_NE(half.hash, f32.hash);
    EXPECT_NEAR(half.first_loss, f32.first_loss, 0.02 * f32.first_loss) << name(dtype);
    EXPECT_NEAR(half.last_loss, f32.last_loss, 0.05 * f32.last_loss) << name(dtype);
    EXPECT_NEAR(half.perplexity, f32.perplexity, 0.1 * f32.perplexity) << name(dtype);
  }
}

// Attention, the states of an LSTM, and logits have the type.
TEST_P(LanguageModelDtype, OutputsHaveTheType) {
  Runtime runtime;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto model = language_model({.model = GetParam(), .dtype = dtype}, 5);
    model->initialize(Normal{0.1}, runtime.devices());
    EXPECT_EQ((*model)(Tensor::host({2, 8}, DType::i64).to(runtime.devices()[0])).dtype(), dtype);
  }
}

// Otherwise f16 would train without a loss scale, under the recipe of f32.
TEST_P(LanguageModelDtype, ThatOfTheTrainerHasToBeTheSame) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_ERROR(
        train_language_model({.model = GetParam(), .dtype = dtype, .trainer_dtype = DType::f32, .max_steps = 1}),
        fmt::format("trainer: the model computes in {}, expected TrainerOptions::dtype, f32", name(dtype)));
    EXPECT_ERROR(
        train_language_model({.model = GetParam(), .trainer_dtype = dtype, .max_steps = 1}),
        fmt::format("trainer: nothing is computed in {}, TrainerOptions::dtype: expected a model whose options "
                    "name it, as GPTOptions::dtype",
                    name(dtype)));
  }
}

}  // namespace
}  // namespace lockstep
