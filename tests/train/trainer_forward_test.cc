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
        const Tensor error = mse_loss(y, batch[2]), again = mean(square(redrawn - batch[0]));
        return {.loss = error + 0.1 * again, .outputs = y, .log = {{"error", error}, {"again", again}}};
      };
    }
    if (options.metrics.empty()) options.metrics = {metrics::mean_absolute_error()};
    options.recipe.set("loss", "gated");
    // Test data whose last batch leaves shards and ranks without samples.
    trainer = std::make_unique<Trainer>(net, *adam, gated_examples(45, 1), gated_examples(17, 2), options);
    trainer->on_step = [this](const StepReport& report) {
      seen += fmt::format("{} ", report.loss);
      for (const auto& [name, value] : report.log) seen += fmt::format("{} {} ", name, value);
    };
    trainer->on_epoch = [this](const EpochReport& report) {
      errors.push_back(metric_named(report.metrics, "mean_absolute_error").value);
      seen += fmt::format("error {}\n", errors.back());
      for (const auto& [name, value] : report.log) seen += fmt::format("{} {} ", name, value);
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

TEST(TrainerForward, ReportsScalarsByName) {
  const TemporaryFolder folder;
  GatedJob job(1, {.accumulate = 2, .max_steps = 7, .log_file = folder / "log"});
  double sum = 0, again = 0, samples = 0;
  job.trainer->on_step = [&](const StepReport& r) {
    ASSERT_EQ(r.log.size(), 2U);
    EXPECT_EQ(r.log[0].first, "error");
    EXPECT_NEAR(r.log[0].second + 0.1 * r.log[1].second, r.loss, 1e-6);
    if (r.epoch > 1) return;
    sum += r.log[0].second * static_cast<double>(r.samples);
    again += r.log[1].second * static_cast<double>(r.samples);
    samples += static_cast<double>(r.samples);
  };
  const TrainingResult result = job.trainer->train();
  ASSERT_EQ(result.epochs[0].log.size(), 2U);
  EXPECT_NEAR(result.epochs[0].log[0].second, sum / samples, 1e-12);
  EXPECT_EQ(result.epochs[0].log[1].first, "again");
  EXPECT_NEAR(result.epochs[0].log[1].second, again / samples, 1e-12);
  const std::string log = folder.read("log");
  EXPECT_NE(log.find("\"log\":{\"error\":"), std::string::npos) << log;

  TrainerOptions options;
  int step = 0;
  options.forward = [&](const Example& batch) -> BatchOutputs {
    const auto [y, redrawn] = job.net.forward(batch[0], batch[1]);
    const Tensor loss = mse_loss(y, batch[2]);
    if (step++ == 2) return {.loss = loss, .outputs = y};
    return {.loss = loss, .outputs = y, .log = {{"a", step < 9 ? loss : y}}};
  };
  options.devices = job.runtime.devices();
  options.batch_size = 8;
  EXPECT_ERROR(Trainer(job.net, *job.adam, gated_examples(45, 1), nullptr, options).train(),
               "`log` has [], expected [a] as in the steps before");
  step = 10;
  EXPECT_ERROR(Trainer(job.net, *job.adam, gated_examples(45, 1), nullptr, options).train(),
               "as \"a\", expected the mean of a batch");
}

TEST(TrainerForward, SumsTheTermsOfALoss) {
  GatedJob sum(1);
  const std::string expected = sum.train();
  Gated* net = nullptr;
  TrainerOptions options;
  bool both = false;
  options.forward = [&](const Example& batch) -> BatchOutputs {
    const auto [y, redrawn] = net->forward(batch[0], batch[1]);
    const Tensor error = mse_loss(y, batch[2]), again = mean(square(redrawn - batch[0]));
    return {.loss = both ? error : Tensor(), .outputs = y, .losses = {{"error", error}, {"again", again, 0.1}}};
  };
  GatedJob terms(2, options);
  net = &terms.net;
  EXPECT_EQ(terms.train(), expected);

  both = true;
  GatedJob wrong(1, options);
  net = &wrong.net;
  EXPECT_ERROR(wrong.train(), "trainer: TrainerOptions::forward returned `loss` and `losses`, expected one of them");
  options.forward = [](const Example&) -> BatchOutputs { return {.losses = {{"error", Tensor()}}}; };
  EXPECT_ERROR(GatedJob(1, options).train(), "trainer: `losses` has no value for \"error\"");
}

TEST(TrainerForward, IsRecordedAndResumedWithTheSameBits) {
  GatedJob one(1);
  const NamedScalars means = [&] {
    NamedScalars all;
    for (const EpochReport& e : one.trainer->train().epochs) all.insert(all.end(), e.log.begin(), e.log.end());
    return all;
  }();
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
  const TrainingResult rest = resumed.trainer->train();
  EXPECT_EQ(weights_sha256(resumed.net), expected);
  // From the epoch in which it stopped.
  ASSERT_EQ(rest.epochs.size(), 5U);
  EXPECT_EQ(rest.epochs[0].log, NamedScalars(means.begin() + 2, means.begin() + 4));
}

// The means of the epoch would be wrong.
TEST(TrainerForward, WhatIsLoggedStaysWithinAnEpoch) {
  TemporaryFolder folder;
  GatedJob stopped(1, {.save_folder = folder.path()});
  stopped.trainer->on_update = [&](std::int64_t step) {
    if (step == 3) stopped.trainer->request_stop();
  };
  stopped.trainer->train();
  Gated* net = nullptr;
  std::vector<std::string> names{"error"};
  TrainerOptions options;
  options.forward = [&](const Example& batch) -> BatchOutputs {
    const auto [y, redrawn] = net->forward(batch[0], batch[1]);
    const Tensor error = mse_loss(y, batch[2]);
    BatchOutputs outputs{.loss = error, .outputs = y};
    for (const std::string& name : names) outputs.log.emplace_back(name, error);
    return outputs;
  };
  GatedJob other(1, options);
  net = &other.net;
  other.trainer->resume(folder.path());
  EXPECT_ERROR(other.trainer->train(), "`log` has [error], and had [error, again] in the part of this epoch before");
  names = {"error", "error"};
  GatedJob twice(1, options);
  net = &twice.net;
  EXPECT_ERROR(twice.trainer->train(), "trainer: `log` has \"error\" twice");
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
