// The page as an observer: what stays of it when a run cannot begin, and when one fails.
#include "lockstep/report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "lockstep/data/formats/image.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/report/page_results.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

struct CannotStart : TrainingObserver {
  std::string label() const override { return "the first"; }
  void start(const TrainingStart&) override { fail("no place"); }
};

struct EndsIt : TrainingObserver {
  std::string label() const override { return "the strict"; }
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  void update(std::int64_t) override { fail("enough"); }
};

class RunPageTest : public ::testing::Test {
 protected:
  Runtime runtime_{{.cpu_devices = 1, .threads_per_shard = 1}};
  TemporaryFolder folder_;
  const std::shared_ptr<const Dataset> data_ = std::make_shared<TensorDataset>(
      std::vector<Tensor>{Tensor::host({32, 4}, DType::f32), Tensor::host({32}, DType::i64)});

  // Trains for an epoch, with the page behind the other observer.
  void train(const std::shared_ptr<TrainingObserver>& other = nullptr) {
    Linear net(4, 2);
    Sgd sgd(net.parameters(), {.lr = 0.1});
    Trainer trainer(net, sgd, data_, nullptr, {.batch_size = 8, .epochs = 1});
    if (other) trainer.observe(other);
    trainer.observe(std::make_shared<RunPage>(
        trainer, RunPageOptions{.folder = folder_ / "page", .title = "Points", .runtime = &runtime_}));
    trainer.train();
  }
  std::string page() { return folder_.read("page/report.html"); }
};

TEST_F(RunPageTest, OfARunThatCannotBeginStaysAsItWas) {
  train();
  const std::string before = page();
  EXPECT_THAT(before, HasSubstr("finished at"));
  EXPECT_ERROR(train(std::make_shared<CannotStart>()), "no place");
  EXPECT_EQ(page(), before);
}

// The timeline of a run that fails is no obstacle to the next one's.
TEST_F(RunPageTest, OfARunThatFailsSaysSo) {
  EXPECT_ERROR(train(std::make_shared<EndsIt>()), "enough");
  EXPECT_THAT(page(), HasSubstr("failed after step"));
  const Timeline own(runtime_);
  train();
  EXPECT_THAT(page(), HasSubstr("finished at"));
}

// It took the tests between two epochs for steps.
TEST_F(RunPageTest, ItsTimelineHasStepsOfOneEpoch) {
  Linear net(4, 2);
  Sgd sgd(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, sgd, data_, data_, {.batch_size = 12, .epochs = 2});  // epochs of 3 steps
  trainer.observe(std::make_shared<RunPage>(trainer, RunPageOptions{.folder = folder_ / "page", .runtime = &runtime_}));
  trainer.train();
  EXPECT_THAT(page(), HasSubstr("Steps 5 to 6"));
}

// A picture whose brightest pixel is 60 was stretched to 255.
TEST(PageResults, ShowBytesAsTheyWere) {
  const Tensor pixels = Tensor::from(std::vector<std::uint8_t>{0, 20, 40, 60}, {1, 2, 2});
  const auto shown = [&](const DataSchema& schema, const std::vector<float>& x) {
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{0}, {1});
    const DataSource data{
        .schema = schema,
        .validation = std::make_shared<TensorDataset>(std::vector{Tensor::from(x, {1, 1, 2, 2}), labels})};
    const auto net = mlp(2, {4});
    return examine(*net, data, {.devices = {kHost}}, std::chrono::seconds(60)).worst.at(0).picture;
  };
  const std::string expected = data_uri("image/png", encode_png(pixels));
  DataSchema schema{.format = DataFormat::npy, .classes = {"a", "b"}, .input = {1, 2, 2}, .outputs = 2};
  schema.array = ArraySchema{.row = {2, 2}, .input = {1, 2, 2}, .type = ElementType::u8, .mean = {30}, .stddev = {10}};
  EXPECT_EQ(shown(schema, {-3, -1, 1, 3}), expected);
  schema.array->mean.clear(), schema.array->stddev.clear();
  schema.array->divisor = 255;
  EXPECT_EQ(shown(schema, {0, 20 / 255.0F, 40 / 255.0F, 60 / 255.0F}), expected);
  schema.array.reset();
  schema.image = ImageSchema{.height = 2, .width = 2, .channels = 1, .mean = {0.5}, .stddev = {0.25}};
  EXPECT_EQ(shown(schema, {-2, 80 / 255.0F - 2, 160 / 255.0F - 2, 240 / 255.0F - 2}),
            data_uri("image/png", encode_png(Tensor::from(std::vector<std::uint8_t>{0, 20, 40, 60}, {1, 2, 2}))));
}

// It called the module itself, and showed other answers than the tests of the training had measured.
TEST(PageResults, AreOfTheOutputsThatTestsMeasure) {
  const Tensor x = Tensor::from(std::vector<float>{1, 0, 0, 1, 0, 1}, {3, 2});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 0, 1}, {3});
  const DataSource data{
      .schema = {.classes = {"a", "b"}, .input = {2}, .outputs = 2},
      .validation = std::make_shared<TensorDataset>(std::vector{x, labels}),
  };
  const Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  Linear net(2, 2);
  const BatchFunction forward = [](const Example& batch) { return BatchOutputs{.outputs = -batch[0]}; };
  const TrainerOptions training{.devices = runtime.devices(), .batch_size = 2, .forward = forward};
  const PageResults results = examine(net, data, training, std::chrono::seconds(60));
  DataLoader loader(data.validation, {.batch_size = 2});
  const MetricResult table =
      evaluate(net, loader, {metrics::confusion_matrix(2)}, {.devices = runtime.devices(), .forward = forward})[0];
  EXPECT_EQ(results.confusion, (std::vector<std::vector<double>>{{1, 0}, {1, 1}}));
  EXPECT_EQ(results.confusion, table.table);
  EXPECT_EQ(results.examples, 3);
}

TEST_F(RunPageTest, WhoseFolderCannotBeMadeIsAnErrorBeforeTheFirstStep) {
  folder_.write("page", "a file");
  EXPECT_ERROR(train(), "page: cannot make the folder " + (folder_ / "page").string());
}

}  // namespace
}  // namespace lockstep
