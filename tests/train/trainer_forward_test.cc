// TrainerOptions::forward: models of several inputs and losses in the Trainer, with the same bits in every layout.
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/layouts.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

// Two inputs and two outputs. Shapes follow from the data.
struct Gated : Module {
  Linear left{{.out_features = 6}}, right{{.out_features = 6}}, out{{.out_features = 2}}, redraw{{.out_features = 3}};
  Dropout dropout{0.1};
  Gated() { add("left", left), add("right", right), add("out", out), add("redraw", redraw), add("dropout", dropout); }
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& gate) {
    const Tensor h = dropout(tanh(left(x)) * sigmoid(right(gate)));
    return {out(h), redraw(h)};
  }
};

// {x [3], gate [1], y [2]}: y is x0 - x1 and x2, where the gate is open.
std::shared_ptr<const Dataset> gated_examples(std::int64_t count, std::uint64_t seed) {
  testing::Random random(seed);
  const Tensor x = random.floats({count, 3}), gate = Tensor::host({count, 1}), y = Tensor::host({count, 2});
  for (std::int64_t i = 0; i < count; ++i) {
    const float open = gate.data_ptr<float>()[i] = static_cast<float>(random.integer(0, 1));
    const float* from = x.data_ptr<float>() + i * 3;
    y.data_ptr<float>()[i * 2] = open * (from[0] - from[1]);
    y.data_ptr<float>()[i * 2 + 1] = open * from[2];
  }
  return std::make_shared<TensorDataset>(std::vector<Tensor>{x, gate, y});
}

struct GatedJob {
  explicit GatedJob(int devices, TrainerOptions options = {}, std::shared_ptr<ProcessGroup> group = nullptr)
      : runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1}) {
    net.initialize(Xavier{}, runtime.devices());
    adam = std::make_unique<Adam>(net.parameters(), AdamOptions{.lr = 0.02});
    options.devices = runtime.devices();
    if (group) options.communicator = std::make_shared<Communicator>(runtime, group);
    options.split.shards = 4;
    options.batch_size = 8;
    options.epochs = 6;
    if (!options.forward) {
      options.forward = [this](const Example& batch) -> BatchOutputs {
        const auto [y, redrawn] = net.forward(batch[0], batch[1]);
        // In a test, a rank without samples has the mean of no elements.
        return {.loss = mse_loss(y, batch[2]) + 0.1 * mean(square(redrawn - batch[0])), .outputs = y};
      };
    }
    if (options.metrics.empty()) options.metrics = {metrics::mean_absolute_error()};
    options.recipe.set("loss", "gated");
    // Test data whose last batch leaves shards and ranks without samples.
    trainer = std::make_unique<Trainer>(net, *adam, gated_examples(45, 1), gated_examples(17, 2), options);
    trainer->on_step = [this](const StepReport& report) { seen += fmt::format("{} ", report.loss); };
    trainer->on_epoch = [this](const EpochReport& report) {
      errors.push_back(metric_named(report.metrics, "mean_absolute_error").value);
      seen += fmt::format("error {}\n", errors.back());
    };
  }
  // All losses, errors, and the weights.
  std::string train() {
    trainer->train();
    return seen + weights_sha256(net);
  }

  Runtime runtime;
  Gated net;
  std::unique_ptr<Adam> adam;
  std::unique_ptr<Trainer> trainer;
  std::string seen;
  std::vector<double> errors;
};

TEST(TrainerForward, ARegressionOfTwoInputsIsTheSameEverywhere) {
  for (const TrainerOptions& options :
       {TrainerOptions{}, TrainerOptions{.accumulate = 2, .clip_norm = 0.5, .average_decay = 0.9}}) {
    GatedJob one(1, options);
    const std::string expected = one.train();
    ASSERT_EQ(one.errors.size(), 6U);
    EXPECT_LT(one.errors.back(), 0.8 * one.errors.front());
    for (const JobLayout layout : {JobLayout{1, 2}, {1, 3}, {2, 1}, {3, 1}, {2, 2}}) {
      EXPECT_EQ(
          run_layout(layout, [&](int devices, const auto& group) { return GatedJob(devices, options, group).train(); }),
          expected)
          << layout.ranks << "x" << layout.devices;
    }
  }
}

TEST(TrainerForward, IsRecordedAndResumedWithTheSameBits) {
  GatedJob one(1);
  one.train();
  const std::string expected = weights_sha256(one.net);
  GatedJob recorded(2, {.record_steps = true});
  recorded.train();
  EXPECT_EQ(recorded.trainer->why_not_recorded(), "");
  EXPECT_EQ(weights_sha256(recorded.net), expected);

  TemporaryFolder folder;
  GatedJob stopped(1, {.save_folder = folder.path()});
  stopped.trainer->on_update = [&](std::int64_t step) {
    if (step == 9) stopped.trainer->request_stop();
  };
  EXPECT_TRUE(stopped.trainer->train().stopped);
  GatedJob resumed(2);
  resumed.trainer->resume(folder.path());
  resumed.trainer->train();
  EXPECT_EQ(weights_sha256(resumed.net), expected);
}

// The checkpoint of an epoch is saved after the test, whose draws must not move those of the next steps.
TEST(TrainerForward, MayDrawNoise) {
  const auto train = [](int devices, TrainerOptions options, const std::string& from, std::int64_t stop_at) {
    Gated* net = nullptr;
    options.forward = [&](const Example& batch) -> BatchOutputs {
      const Tensor noisy = batch[0] + 0.1 * randn({kBatch, 3}, like(batch[0]));
      const auto [y, redrawn] = net->forward(noisy, batch[1]);
      return {.loss = mse_loss(y, batch[2]) + 0.1 * mse_loss(redrawn, batch[0]), .outputs = y};
    };
    GatedJob job(devices, options);
    net = &job.net;
    if (!from.empty()) job.trainer->resume(from);
    job.trainer->on_update = [&](std::int64_t step) {
      if (step == stop_at) job.trainer->request_stop();
    };
    job.trainer->train();
    return weights_sha256(job.net);
  };
  const std::string expected = train(1, {}, "", 0);
  TemporaryFolder folder;
  constexpr std::int64_t kStepsOfAnEpoch = 6;
  train(1, {.save_folder = folder.path()}, "", kStepsOfAnEpoch);
  EXPECT_EQ(train(2, {}, folder.path(), 0), expected);
}

TEST(TrainerForward, ThatDoesWhatTheTrainerDoesHasItsBits) {
  TrainerOptions options{.epochs = 2};
  SmallJob plain(2, options);
  const TrainingResult expected = plain.trainer->train();
  Module* net = nullptr;
  options.forward = [&](const Example& batch) -> BatchOutputs {
    const Tensor outputs = (*net)(batch[0]);
    return {.loss = cross_entropy(outputs, batch[1]), .outputs = outputs};
  };
  SmallJob job(2, options);
  net = &job.net;
  const TrainingResult result = job.trainer->train();
  EXPECT_EQ(job.losses, plain.losses);
  EXPECT_EQ(weights_sha256(job.net), weights_sha256(plain.net));
  ASSERT_EQ(result.epochs.size(), 2U);
  for (std::size_t e = 0; e < 2; ++e) {
    EXPECT_EQ(result.epochs[e].test.correct, expected.epochs[e].test.correct);
    EXPECT_EQ(result.epochs[e].test.total, SmallJob::kTest);
  }
}

TEST(TrainerForward, MayNameOtherTargets) {
  TrainerOptions options{.metrics = {metrics::mean_squared_error()}};
  options.forward = [](const Example& batch) -> BatchOutputs {
    return {.loss = mean(batch[0]), .outputs = batch[2] + 2, .targets = batch[2]};
  };
  EXPECT_NEAR(metric_named(GatedJob(2, options).trainer->measure(), "mean_squared_error").value, 4, 1e-5);
}

// Otherwise it would train in f32 under the recipe of bf16 or f16.
TEST(TrainerForward, ComputesInTheTypeOfTheRecipe) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    EXPECT_ERROR(
        GatedJob(1, {.dtype = dtype}).train(),
        fmt::format("trainer: nothing is computed in {}, TrainerOptions::dtype: expected `forward` to cast its inputs, "
                    "as in batch[0].to(dtype)",
                    name(dtype)));
    // Casting outputs back, for the loss, is allowed.
    Gated* net = nullptr;
    TrainerOptions options{.dtype = dtype};
    options.forward = [&](const Example& batch) -> BatchOutputs {
      const Tensor y = net->forward(batch[0].to(dtype), batch[1].to(dtype)).first.to(DType::f32);
      return {.loss = mse_loss(y, batch[2]), .outputs = y};
    };
    for (const bool record : {false, true}) {
      options.record_steps = record;
      GatedJob job(2, options);
      net = &job.net;
      EXPECT_NO_THROW(job.train());
    }
  }
}

// The part that computes in the type may be frozen: then it has no history.
TEST(TrainerForward, AFrozenPartMayComputeInTheType) {
  Gated* net = nullptr;
  TrainerOptions options{.dtype = DType::bf16};
  options.forward = [&](const Example& batch) -> BatchOutputs {
    Tensor h;
    {
      const NoGradGuard guard;
      h = (batch[0].to(DType::bf16) * 2).to(DType::f32);
    }
    const Tensor y = net->forward(h, batch[1]).first;
    return {.loss = mse_loss(y, batch[2]), .outputs = y};
  };
  GatedJob job(1, options);
  net = &job.net;
  EXPECT_NO_THROW(job.train());
}

TEST(TrainerForward, ErrorsNameIt) {
  // Examples of three parts, and no such function.
  Runtime runtime({.cpu_devices = 1});
  Linear net({.out_features = 2});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const TrainerOptions plain{.devices = runtime.devices(), .batch_size = 8};
  EXPECT_ERROR(Trainer(net, sgd, gated_examples(8, 1), nullptr, plain).train(),
               "trainer: examples have 3 parts, expected inputs and labels, or TrainerOptions::forward");
  DataLoader loader(gated_examples(8, 1), {.batch_size = 8});
  for (const std::vector<Metric>& measured : {std::vector<Metric>{}, {metrics::mean_squared_error()}}) {
    const EvaluateOptions options{.devices = runtime.devices()};
    EXPECT_ERROR(
        measured.empty() ? (void)evaluate(net, loader, options) : (void)evaluate(net, loader, measured, options),
        "evaluate: examples have 3 parts, expected inputs and ");
  }

  TrainerOptions options;
  options.loss = [](const Tensor& outputs, const Tensor& labels) { return mse_loss(outputs, labels); };
  EXPECT_ERROR(GatedJob(1, options), "trainer: `forward` computes the loss, expected no `loss`");
  EXPECT_ERROR(GatedJob(1, {.label_smoothing = 0.1}), "expected no `loss` and no label_smoothing");
  options.loss = nullptr;
  options.forward = [](const Example&) { return BatchOutputs{}; };
  EXPECT_ERROR(GatedJob(1, options).train(), "trainer: TrainerOptions::forward returned no loss");
  EXPECT_ERROR(GatedJob(1, options).trainer->test(),
               "`forward` returned no outputs, expected what the metrics measure");
  options.forward = [](const Example& batch) -> BatchOutputs {
    return {.loss = mean(batch[0]), .outputs = batch[0].to(DType::bf16)};
  };
  EXPECT_ERROR(GatedJob(1, options).train(),
               "trainer: the model computes in bf16, expected TrainerOptions::dtype, f32");
}

}  // namespace
}  // namespace lockstep
