// The page as an observer: what stays of it when a run cannot begin, and when one fails.
#include "lockstep/report/run_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "lockstep/data/tensor_dataset.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
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

TEST_F(RunPageTest, WhoseFolderCannotBeMadeIsAnErrorBeforeTheFirstStep) {
  folder_.write("page", "a file");
  EXPECT_ERROR(train(), "page: cannot make the folder " + (folder_ / "page").string());
}

}  // namespace
}  // namespace lockstep
