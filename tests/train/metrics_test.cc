#include "lockstep/train/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/engine/task.h"
#include "lockstep/models/gpt.h"
#include "lockstep/train/training_log.h"
#include "tests/expect_error.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

struct Echo : Module {
  Tensor forward(const Tensor& x) override {
    EXPECT_FALSE(training());
    return x;
  }
};

std::vector<MetricResult> measure(const Tensor& outputs, const Tensor& targets, const std::vector<Metric>& metrics,
                                  int devices = 1, std::int64_t batch_size = 4) {
  Runtime runtime({.cpu_devices = devices});
  Echo net;
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<Tensor>{outputs, targets}), {.batch_size = batch_size});
  return evaluate(net, loader, metrics, {.devices = runtime.devices(), .split = {.shards = 3}});
}

constexpr std::int64_t kRows = 31, kClasses = 6;

// Few different values, so that many are equal; and labels, some of which are -1.
struct Scores {
  Tensor outputs = Tensor::host({kRows, kClasses}), labels = Tensor::host({kRows}, DType::i64);
  Scores() {
    testing::Random random(1);
    for (std::int64_t i = 0; i < kRows * kClasses; ++i) outputs.data_ptr<float>()[i] = 0.5F * random.integer(0, 4);
    for (std::int64_t i = 0; i < kRows; ++i) labels.data_ptr<std::int64_t>()[i] = random.integer(-1, kClasses - 1);
  }
  float output(std::int64_t row, std::int64_t c) const { return outputs.data_ptr<float>()[row * kClasses + c]; }
  std::int64_t label(std::int64_t row) const { return labels.data_ptr<std::int64_t>()[row]; }
};

TEST(Metrics, OfClassesAreThoseOfAPlainLoop) {
  const Scores s;
  double counted = 0, top1 = 0, top3 = 0, entropy = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::int64_t label = s.label(row);
    if (label < 0) continue;
    double ahead = 0, total = 0;
    for (std::int64_t c = 0; c < kClasses; ++c) {
      total += std::exp(s.output(row, c));
      ahead += s.output(row, c) > s.output(row, label) || (s.output(row, c) == s.output(row, label) && c < label);
    }
    counted += 1;
    top1 += ahead < 1;
    top3 += ahead < 3;
    entropy += std::log(total) - s.output(row, label);
  }
  ASSERT_LT(counted, kRows);
  const metrics::ClassOptions options{.ignore_index = -1};
  const std::vector<Metric> all{metrics::accuracy(options), metrics::top_k_accuracy(1, options),
                                metrics::top_k_accuracy(3, options), metrics::perplexity(options)};
  for (int devices : {1, 2, 3}) {
    const auto results = measure(s.outputs, s.labels, all, devices);
    ASSERT_EQ(results.size(), 4U);
    for (const MetricResult& r : results) EXPECT_EQ(r.count, counted) << r.name;
    EXPECT_EQ(metric_named(results, "accuracy").sum, top1);
    EXPECT_EQ(metric_named(results, "top1_accuracy").sum, top1);
    EXPECT_EQ(metric_named(results, "top3_accuracy").value, top3 / counted);
    EXPECT_NEAR(metric_named(results, "perplexity").value, std::exp(entropy / counted), 1e-5);
  }
}

// -100 does not count by default, as in the losses.
TEST(Metrics, IgnoreTheLabelThatTheLossesIgnore) {
  const Tensor outputs = Tensor::from(std::vector<float>{1, 0, 1, 0, 0, 1, 0, 1}, {4, 2});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, -100, 0, -100}, {4});
  const auto results =
      measure(outputs, labels,
              {metrics::accuracy(), metrics::top_k_accuracy(1), metrics::perplexity(), metrics::confusion_matrix(2)});
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(results[i].sum, 1);
    EXPECT_EQ(results[i].count, 2);
  }
  EXPECT_EQ(results[2].count, 2);
  EXPECT_NEAR(results[2].value, std::exp(std::log(1 + std::exp(-1)) / 2 + std::log(1 + std::exp(1)) / 2), 1e-5);
  EXPECT_EQ(results[3].table, (std::vector<std::vector<double>>{{1, 1}, {0, 0}}));
  // A caller who wants it counts every label.
  EXPECT_EQ(measure(outputs, labels, {metrics::accuracy({.ignore_index = std::nullopt})})[0].count, 4);

  Runtime runtime({.cpu_devices = 2});
  Echo net;
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<Tensor>{outputs, labels}), {.batch_size = 3});
  const Accuracy accuracy = evaluate(net, loader, {.devices = runtime.devices()});
  EXPECT_EQ(accuracy.correct, 1);
  EXPECT_EQ(accuracy.total, 2);
  const std::vector<Misclassified> wrong = misclassified(net, loader, {.devices = runtime.devices()});
  ASSERT_EQ(wrong.size(), 1U);
  EXPECT_EQ(wrong[0].index, 2);
}

TEST(Metrics, FindClassesOnAnyAxis) {
  // [2, 3, 2]: samples, steps, classes.
  const Tensor outputs = Tensor::from(std::vector<float>{1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1}, {2, 3, 2});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 1, 0, 0, 1}, {2, 3});
  const auto results = measure(
      outputs, labels,
      {metrics::accuracy({.dim = -1}), metrics::top_k_accuracy(2, {.dim = 2}), metrics::perplexity({.dim = -1})});
  EXPECT_EQ(results[0].sum, 4);
  EXPECT_EQ(results[0].count, 6);
  EXPECT_EQ(results[1].value, 1);
  const double right = std::log(1 + std::exp(-1)), wrong = std::log(1 + std::exp(1));
  EXPECT_NEAR(results[2].value, std::exp((4 * right + 2 * wrong) / 6), 1e-6);
}

TEST(Metrics, TheConfusionMatrixCountsLabelsByRow) {
  const Scores s;
  std::vector<std::vector<double>> expected(kClasses, std::vector<double>(kClasses));
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < kClasses; ++c) {
      if (s.output(row, c) > s.output(row, best)) best = c;
    }
    if (s.label(row) >= 0) ++expected[static_cast<std::size_t>(s.label(row))][static_cast<std::size_t>(best)];
  }
  const std::vector<Metric> all{metrics::confusion_matrix(kClasses, {.ignore_index = -1}), metrics::accuracy()};
  for (int devices : {1, 3}) {
    const auto results = measure(s.outputs, s.labels, all, devices);
    EXPECT_EQ(results[0].table, expected);
    EXPECT_TRUE(std::isnan(results[0].value));
    EXPECT_TRUE(results[1].table.empty());
  }
  EXPECT_TRUE(measure(Tensor::host({0, 6}), Tensor::host({0}, DType::i64), all)[0].table.empty());
  EXPECT_ERROR(measure(s.outputs, s.labels, {metrics::confusion_matrix(5)}),
               "confusion_matrix: outputs are [2, 6] f32");
  EXPECT_ERROR(metrics::confusion_matrix(0), "confusion_matrix: 0 classes");
  const Metric flat{
      .name = "flat", .values = [](const Tensor& outputs, const Tensor&) { return outputs; }, .table = true};
  EXPECT_ERROR(measure(s.outputs, s.labels, {flat}), "expected a table for each sample");
}

TEST(Metrics, OfNumbersCountEveryElement) {
  const Tensor outputs = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor targets = Tensor::from(std::vector<float>{1, 0, 0, 4, 5, 7}, {3, 2});
  const Metric close{.name = "close", .values = [](const Tensor& a, const Tensor& b) { return le(abs(a - b), 1); }};
  const std::vector<Metric> all{metrics::mean_absolute_error(), metrics::mean_squared_error(), close};
  const auto results = measure(outputs, targets, all, 2);
  EXPECT_EQ(metric_named(results, "mean_absolute_error").value, 1);
  EXPECT_EQ(metric_named(results, "mean_squared_error").value, 14.0 / 6);
  EXPECT_EQ(metric_named(results, "close").value, 4.0 / 6);
  EXPECT_ERROR(metric_named(results, "accuracy"),
               "metric accuracy: not measured, expected one of [mean_absolute_error, mean_squared_error, close]");
}

TEST(Metrics, NoExamplesNoValue) {
  const auto results = measure(Tensor::host({0, 2}), Tensor::host({0, 2}), {metrics::mean_absolute_error()});
  EXPECT_EQ(results[0].count, 0);
  EXPECT_TRUE(std::isnan(results[0].value));
}

TEST(Metrics, ErrorsNameTheMetric) {
  const Scores s;
  const std::vector<Metric> twice{metrics::accuracy(), metrics::accuracy()};
  EXPECT_ERROR(measure(s.outputs, s.labels, twice), "metric accuracy: the name is used twice");
  EXPECT_ERROR(measure(s.outputs, s.outputs, {metrics::accuracy()}), "accuracy: outputs are [2, 6] f32");
  EXPECT_ERROR(measure(s.outputs, s.labels, {{.name = "odd"}}), "metric odd: `values` is not set");
  EXPECT_ERROR(measure(s.outputs, s.labels, {metrics::top_k_accuracy(1000)}), "top1000_accuracy: the outputs have ");
  EXPECT_ERROR(metrics::top_k_accuracy(0), "top_k_accuracy: k is 0, expected at least 1");
}

// A training with a loss and metrics of its own.
struct MetricsTask {
  std::unique_ptr<Module> net;
  Initializer initializer;
  std::shared_ptr<const Dataset> train, test;
  TrainerOptions options;
};

// y = x W + 0.1 noise. The last batch of the test data has one sample: most shards, and one of two ranks, have none.
MetricsTask regression() {
  const auto data = [](std::int64_t count, std::uint64_t seed) {
    testing::Random random(seed);
    const Tensor x = random.floats({count, 3}), y = random.floats({count, 2});
    for (std::int64_t i = 0; i < count; ++i) {
      const float* from = x.data_ptr<float>() + i * 3;
      float* to = y.data_ptr<float>() + i * 2;
      to[0] = 0.1F * to[0] + from[0] - 2 * from[1];
      to[1] = 0.1F * to[1] + 3 * from[2];
    }
    return std::make_shared<TensorDataset>(std::vector<Tensor>{x, y});
  };
  TrainerOptions options;
  options.loss = [](const Tensor& outputs, const Tensor& targets) { return mse_loss(outputs, targets); };
  options.metrics = {metrics::mean_absolute_error(), metrics::mean_squared_error()};
  return {std::make_unique<Linear>(LinearOptions{.in_features = 3, .out_features = 2}), Normal{0.1}, data(40, 1),
          data(17, 2), options};
}

// Which letter follows which: i64 in, and a loss over [N, T, classes].
MetricsTask language() {
  const auto data = [](std::int64_t count) {
    const Tensor ids = Tensor::host({count, 6}, DType::i64), next = Tensor::host({count, 6}, DType::i64);
    for (std::int64_t i = 0; i < count * 6; ++i) {
      ids.data_ptr<std::int64_t>()[i] = (i / 6 + i % 6) % 5;
      next.data_ptr<std::int64_t>()[i] = (i / 6 + i % 6 + 1) % 5;
    }
    return std::make_shared<TensorDataset>(std::vector<Tensor>{ids, next});
  };
  TrainerOptions options;
  options.loss = [](const Tensor& outputs, const Tensor& targets) {
    return cross_entropy(transpose(outputs, 1, 2), targets);
  };
  const metrics::ClassOptions classes{.dim = 2};
  options.metrics = {metrics::perplexity(classes), metrics::accuracy(classes), metrics::top_k_accuracy(2, classes),
                     metrics::confusion_matrix(5, classes)};
  return {std::make_unique<GPT>(GPTOptions{.vocab_size = 5, .block_size = 6, .n_layer = 1, .n_head = 2, .n_embd = 8}),
          Normal{0.1}, data(40), data(17), options};
}

struct Trained {
  std::string weights, error;
  std::vector<EpochReport> epochs;
};

Trained train(MetricsTask task, int devices, std::shared_ptr<ProcessGroup> group = nullptr) {
  Trained t;
  try {
    Runtime runtime({.cpu_devices = devices, .cores_per_device = 1, .threads_per_shard = 1});
    task.net->initialize(task.initializer, runtime.devices());
    Adam adam(task.net->parameters(), {.lr = 0.05});
    TrainerOptions& o = task.options;
    o.devices = runtime.devices();
    if (group) o.communicator = std::make_shared<Communicator>(runtime, group);
    o.split.shards = 4;
    o.batch_size = 8;
    o.epochs = 6;
    Trainer trainer(*task.net, adam, task.train, task.test, o);
    t.epochs = trainer.train().epochs;
    t.weights = weights_sha256(*task.net);
  } catch (const std::exception& error) {
    t.error = error.what();
    if (group) group->abort(t.error);
  }
  return t;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.error, "");
  EXPECT_EQ(a.weights, b.weights);
  ASSERT_EQ(a.epochs.size(), b.epochs.size());
  for (std::size_t e = 0; e < a.epochs.size(); ++e) {
    ASSERT_EQ(a.epochs[e].metrics.size(), b.epochs[e].metrics.size());
    for (std::size_t m = 0; m < a.epochs[e].metrics.size(); ++m) {
      EXPECT_EQ(a.epochs[e].metrics[m].sum, b.epochs[e].metrics[m].sum);
      EXPECT_EQ(a.epochs[e].metrics[m].count, b.epochs[e].metrics[m].count);
      EXPECT_EQ(a.epochs[e].metrics[m].table, b.epochs[e].metrics[m].table);
      if (!a.epochs[e].metrics[m].table.empty()) continue;
      EXPECT_EQ(a.epochs[e].metrics[m].value, b.epochs[e].metrics[m].value);
    }
    EXPECT_EQ(a.epochs[e].test.correct, b.epochs[e].test.correct);
    EXPECT_EQ(a.epochs[e].test.total, b.epochs[e].test.total);
  }
}

// The result of one device.
Trained same_everywhere(MetricsTask (*make)()) {
  const Trained one = train(make(), 1);
  EXPECT_EQ(one.error, "");
  expect_same(train(make(), 2), one);
  for (const auto& [world, devices] : {std::pair{2, 1}, {3, 1}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("{}x{}", world, devices));
    auto groups = make_local_groups(world);
    std::vector<Trained> ranks(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r, devices = devices] { ranks[r] = train(make(), devices, groups[r]); });
    }
    for (std::thread& t : threads) t.join();
    for (const Trained& rank : ranks) expect_same(rank, one);
  }
  return one;
}

TEST(TrainerMetrics, RegressionIsTheSameEverywhere) {
  const Trained one = same_everywhere(regression);
  ASSERT_EQ(one.epochs.size(), 6U);
  const auto error = [&](std::size_t epoch) { return metric_named(one.epochs[epoch].metrics, "mean_absolute_error"); };
  EXPECT_EQ(error(5).count, 17 * 2);
  EXPECT_LT(error(5).value, 0.7 * error(0).value);
  EXPECT_EQ(one.epochs[5].test.total, 0);
}

TEST(TrainerMetrics, LanguageModelIsTheSameEverywhere) {
  const Trained one = same_everywhere(language);
  ASSERT_EQ(one.epochs.size(), 6U);
  EXPECT_LT(metric_named(one.epochs[5].metrics, "perplexity").value, 3);
  const MetricResult accuracy = metric_named(one.epochs[5].metrics, "accuracy");
  EXPECT_GT(accuracy.value, 0.5);
  EXPECT_GE(metric_named(one.epochs[5].metrics, "top2_accuracy").value, accuracy.value);
  EXPECT_EQ(one.epochs[5].test.total, 17 * 6);
  EXPECT_EQ(static_cast<double>(one.epochs[5].test.correct), accuracy.sum);
  double right = 0, all = 0;
  const auto& table = metric_named(one.epochs[5].metrics, "confusion_matrix").table;
  ASSERT_EQ(table.size(), 5U);
  for (std::size_t row = 0; row < 5; ++row) {
    for (double count : table[row]) all += count;
    right += table[row][row];
  }
  EXPECT_EQ(all, 17 * 6);
  EXPECT_EQ(right, accuracy.sum);
}

TEST(EpochEvent, HasMetricsByName) {
  EpochReport report{.epoch = 2, .seconds = 0.5, .train_loss = 1.5, .test = {3, 4}};
  const nlohmann::ordered_json plain = epoch_event(report);
  EXPECT_EQ(plain.dump(),
            R"({"event":"epoch","epoch":2,"seconds":0.5,"data_seconds":0.0,"train_loss":1.5,"test_acc":0.75,)"
            R"("test_correct":3,"test_total":4})");
  report.metrics = {
      {"accuracy", 3, 4, 0.75}, {"perplexity", 8, 4, 7.5}, {.name = "confusion_matrix", .table = {{1, 0}, {2, 3}}}};
  nlohmann::ordered_json more = plain;
  more["metrics"] = {{"accuracy", 0.75}, {"perplexity", 7.5}};
  more["metrics"]["confusion_matrix"] = std::vector<std::vector<double>>{{1, 0}, {2, 3}};
  EXPECT_EQ(epoch_event(report), more);
  report.test = {};
  report.metrics = {};
  EXPECT_EQ(epoch_event(report).dump(),
            R"({"event":"epoch","epoch":2,"seconds":0.5,"data_seconds":0.0,"train_loss":1.5})");
  report.metrics = {{"mean_absolute_error", 3, 4, 0.75}};
  EXPECT_EQ(epoch_event(report).dump(),
            R"({"event":"epoch","epoch":2,"seconds":0.5,"data_seconds":0.0,"train_loss":1.5,)"
            R"("metrics":{"mean_absolute_error":0.75}})");
}

}  // namespace
}  // namespace lockstep
