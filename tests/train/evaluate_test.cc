#include "lockstep/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

// Its inputs are its outputs, so that a test decides every prediction.
struct Identity : Module {
  Tensor forward(const Tensor& x) override {
    EXPECT_FALSE(training());
    samples += x.size(0);
    return x;
  }
  std::int64_t samples = 0;
};

// Row i says class i % 4; labels are right where i is divisible by `every`.
std::shared_ptr<const Dataset> rows(std::int64_t count, std::int64_t every) {
  Tensor logits = Tensor::host({count, 4}), labels = Tensor::host({count}, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) {
    logits.data_ptr<float>()[i * 4 + i % 4] = 1;
    labels.data_ptr<std::int64_t>()[i] = i % every == 0 ? i % 4 : (i + 1) % 4;
  }
  return std::make_shared<TensorDataset>(std::vector<Tensor>{logits, labels});
}

TEST(Evaluate, CountsEachImageExactlyOnce) {
  Runtime runtime({.cpu_devices = 3});
  for (const std::int64_t count : {1, 2, 7, 30, 31}) {
    for (const std::int64_t batch_size : {1, 4, 10, 100}) {
      for (const int shards : {0, 1, 2, 8}) {
        Identity net;
        DataLoader loader(rows(count, 3), {.batch_size = batch_size});
        const Accuracy a = evaluate(net, loader, {.devices = runtime.devices(), .split = {.shards = shards}});
        EXPECT_EQ(a.total, count);
        EXPECT_EQ(a.correct, (count + 2) / 3);
        EXPECT_EQ(net.samples, count);
      }
    }
  }
}

TEST(Evaluate, LeavesTheModelInItsMode) {
  Runtime runtime;
  Identity net;
  DataLoader loader(rows(5, 1), {.batch_size = 2});
  const Accuracy a = evaluate(net, loader, {.devices = runtime.devices()});
  EXPECT_EQ(a.value(), 1);
  EXPECT_TRUE(net.training());
  net.eval();
  evaluate(net, loader, {.devices = runtime.devices()});
  EXPECT_FALSE(net.training());
}

TEST(Evaluate, AnswersTheSameOnAnyNumberOfDevices) {
  // Tensor norm and dropout: an evaluation that trained would see it.
  SmallJob one(1, {.epochs = 2}), three(3, {.epochs = 2});
  one.trainer->train();
  three.trainer->train();
  const Accuracy a = one.trainer->evaluate();
  EXPECT_EQ(a.total, SmallJob::kTest);
  EXPECT_EQ(three.trainer->evaluate().correct, a.correct);
  EXPECT_EQ(one.trainer->evaluate().correct, a.correct);
}

// A device has the activations of one shard at a time, so more shards of the same size need no more memory.
TEST(Evaluate, MemoryDoesNotGrowWithShards) {
  const auto peak = [](int shards) {
    constexpr std::int64_t kRows = 8;  // in a shard
    Runtime runtime({.cpu_devices = 1, .cores_per_device = 1, .threads_per_shard = 1});
    Sequential net;
    net.append<Linear>(LinearOptions{.in_features = 4, .out_features = 4096})
        .append<ReLU>()
        .append<Linear>(LinearOptions{.in_features = 4096, .out_features = 4});
    net.initialize(Normal{}, runtime.devices());
    const std::size_t weights = runtime.memory(runtime.devices()[0]).used_bytes;
    DataLoader loader(rows(2 * kRows * shards, 1), {.batch_size = kRows * shards});
    EXPECT_EQ(evaluate(net, loader, {.devices = runtime.devices(), .split = {.shards = shards}}).total,
              2 * kRows * shards);
    return runtime.memory(runtime.devices()[0]).peak_used_bytes - weights;
  };
  const std::size_t one = peak(1);
  EXPECT_GE(one, 8U * 4096 * sizeof(float));
  EXPECT_LT(static_cast<double>(peak(16)), 1.1 * static_cast<double>(one));
}

// A label for each place of an image.
TEST(Evaluate, CountsEveryLabel) {
  Runtime runtime({.cpu_devices = 2});
  // [6, 2, 3]: at place i, class 1 is the larger one.
  std::vector<float> logits;
  for (int n = 0; n < 6; ++n) logits.insert(logits.end(), {0, 0, 0, 1, 1, 1});
  std::vector<std::int64_t> labels(18, 1);
  labels[4] = labels[17] = 0;
  Identity net;
  DataLoader loader(std::make_shared<TensorDataset>(
                        std::vector<Tensor>{Tensor::from(logits, {6, 2, 3}), Tensor::from(labels, {6, 3})}),
                    {.batch_size = 4});
  const Accuracy a = evaluate(net, loader, {.devices = runtime.devices()});
  EXPECT_EQ(a.total, 18);
  EXPECT_EQ(a.correct, 16);
}

TEST(Evaluate, OutputsAndLabelsThatDoNotFitAreErrors) {
  Runtime runtime({.cpu_devices = 1});
  const auto refused = [&](const Tensor& outputs, const Tensor& labels) {
    Identity net;
    DataLoader loader(std::make_shared<TensorDataset>(std::vector<Tensor>{outputs, labels}), {.batch_size = 4});
    EXPECT_ERROR(evaluate(net, loader, {.devices = runtime.devices()}),
                 fmt::format("evaluate: outputs are {}", outputs.shape().str()));
    EXPECT_ERROR(evaluate(net, loader, {.devices = runtime.devices()}), "TrainerOptions::metrics");
    EXPECT_TRUE(net.training());
  };
  const auto labels = [](const Shape& shape) { return Tensor::host(shape, DType::i64); };
  refused(Tensor::host({4, 5, 3}), labels({4, 5}));  // [n, steps, classes]: the classes are not on axis 1
  refused(Tensor::host({4, 5}), labels({4, 1}));
  refused(Tensor::host({4}), labels({4}));
  refused(Tensor::host({4, 2}), Tensor::host({4}));
  refused(Tensor::host({4, 2}), Tensor::host({4, 2}));
}

// A regression whose tests would fail only after an epoch.
TEST(Evaluate, ATrainerWantsLabelsOrMetricsBeforeItsFirstStep) {
  Runtime runtime({.threads_per_shard = 1});
  Linear net({.in_features = 3, .out_features = 2});
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1});
  const auto data = [](int parts) {
    std::vector<Tensor> all{Tensor::host({8, 3}), Tensor::host({8, 2}), Tensor::host({8, 2})};
    all.resize(static_cast<std::size_t>(parts));
    return TensorDataset(all);
  };
  const auto train = [&](int parts, TrainerOptions options) {
    options.devices = runtime.devices();
    options.batch_size = 4;
    options.epochs = 1;
    options.loss = [](const Tensor& outputs, const Tensor& targets) { return mse_loss(outputs, targets); };
    return Trainer(net, sgd, data(2), data(parts), options).train().steps;
  };
  EXPECT_ERROR(train(2, {}), "trainer: labels of the test data are [1, 2] f32");
  EXPECT_ERROR(train(3, {}), "trainer: examples of the test data have 3 parts");
  EXPECT_EQ(sgd.steps(), 0);
  EXPECT_EQ(train(2, {.metrics = {metrics::mean_squared_error()}}), 2);
}

TEST(Evaluate, NoImagesNoAccuracy) {
  Runtime runtime;
  Identity net;
  DataLoader loader(rows(0, 1), {.batch_size = 2});
  const Accuracy a = evaluate(net, loader, {.devices = runtime.devices()});
  EXPECT_EQ(a.total, 0);
  EXPECT_EQ(a.value(), 0);
}

// What another option makes idle is an error.
TEST(Evaluate, NoOptionIsIgnored) {
  Runtime runtime({.cpu_devices = 2});
  Sequential net;
  net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5});
  net.initialize(Xavier{}, runtime.devices());
  DataLoader loader(random_pictures(4, 1), {.batch_size = 4});
  BatchSplitter shared(runtime.devices(), {.shards = 2});
  const BatchFunction forward = [&](const Example& batch) { return BatchOutputs{.outputs = net(batch[0])}; };
  EXPECT_ERROR(evaluate(net, loader, {.split = {.shards = 2}, .distributed = &shared}),
               "evaluate: split is set beside `distributed`");
  EXPECT_ERROR(evaluate(net, loader, {.devices = {runtime.devices()[1]}, .distributed = &shared}),
               "evaluate: devices are set beside `distributed`");
  EXPECT_ERROR(evaluate(net, loader, {.dtype = DType::bf16, .forward = forward}),
               "evaluate: dtype is bf16 beside `forward`, expected `forward` to cast its inputs");
  EXPECT_EQ(evaluate(net, loader, {.devices = runtime.devices(), .distributed = &shared}).total, 4);
  EXPECT_EQ(evaluate(net, loader, {.forward = forward}).total, 4);
}

// Equal and tiny logits, logits that are not finite, a label that does not count, and labels that are no class.
TEST(Misclassified, AgreesWithEvaluate) {
  Runtime runtime({.cpu_devices = 3});
  Identity net;
  const std::vector<float> logits{1e-20F, 2e-20F, 0, 0, NAN, HUGE_VALF, 0, 1, HUGE_VALF, 3, 3,
                                  0,      0,      0, 1, 1,   0,         0, 1, 0,         0};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t batch_size : {2, 3, 7}) {  // batches that cannot give each device a shard
      DataLoader loader(
          std::make_shared<TensorDataset>(std::vector<Tensor>{
              Tensor::from(logits, {7, 3}), Tensor::from(std::vector<std::int64_t>{1, 2, 2, 1, -100, 3, -1}, {7})}),
          {.batch_size = batch_size});
      const EvaluateOptions options{.devices = runtime.devices(), .dtype = dtype};
      std::vector<std::int64_t> wrong;
      for (const Misclassified& m : misclassified(net, loader, options)) wrong.push_back(m.index);
      const Accuracy accuracy = evaluate(net, loader, options);
      EXPECT_EQ(accuracy.total, 6);
      EXPECT_EQ(std::ssize(wrong), accuracy.total - accuracy.correct);
      // f16 has no 1e-20: example 0 is wrong, too.
      const std::int64_t first = dtype == DType::f16 ? 0 : 1;
      EXPECT_EQ(wrong.front(), first);
      EXPECT_EQ(std::ssize(wrong), 5 - first);
    }
  }
}

TEST(Misclassified, ListsTheExamplesWithTheirClasses) {
  // The outputs are the inputs: the largest is the prediction.
  struct Same : Module {
    Tensor forward(const Tensor& x) override { return x * 1.0; }
  };
  Runtime runtime({.cpu_devices = 2});
  Same net;
  DataLoader loader(TensorDataset({Tensor::from(std::vector<float>{9, 1, 2, 0, 5, 4, 1, 2, 3, 7, 6, 6}, {4, 3}),
                                   Tensor::from(std::vector<std::int64_t>{0, 2, 2, 1}, {4})}),
                    {.batch_size = 3});
  const std::vector<Misclassified> wrong = misclassified(net, loader, {.devices = runtime.devices()});
  ASSERT_EQ(wrong.size(), 2U);
  EXPECT_EQ(std::tuple(wrong[0].index, wrong[0].label, wrong[0].predicted), std::tuple(1, 2, 1));
  EXPECT_EQ(std::tuple(wrong[1].index, wrong[1].label, wrong[1].predicted), std::tuple(3, 1, 0));
  EXPECT_ERROR(misclassified(net, loader, {.forward = [](const Example&) { return BatchOutputs{}; }}),
               "misclassified: EvaluateOptions::distributed or forward is set");
}

}  // namespace
}  // namespace lockstep
