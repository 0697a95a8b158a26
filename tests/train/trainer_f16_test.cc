// Training in f16: with a scaled loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/train/trainer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/train/small_job.h"

namespace lockstep {
namespace {

// The first steps overflow, and the scale is on its way when the run stops.
TEST(TrainerF16, SkipsStepsThatOverflowAndGoesOnToTheBit) {
  const TrainerOptions options{.epochs = 3,
                               .seed = 5,
                               .dtype = DType::f16,
                               .loss_scaling = {.initial_scale = 0x1p24, .growth_interval = 4},
                               .clip_norm = 0.5};
  SmallJob whole(2, options);
  whole.trainer->train();
  std::vector<double> scales;
  for (const StepReport& step : whole.steps) scales.push_back(step.loss_scale.value());
  ASSERT_EQ(scales.size(), 15u);
  EXPECT_EQ(scales[0], 0x1p24);
  EXPECT_EQ(scales[1], 0x1p23);
  EXPECT_GT(scales.back(), *std::ranges::min_element(scales)) << ::testing::PrintToString(scales);

  for (const int stop : {1, 7, 11}) {
    SCOPED_TRACE(stop);
    TemporaryFolder folder;
    TrainerOptions first = options;
    first.max_steps = stop;
    first.save_folder = folder.path();
    SmallJob stopped(2, first);
    stopped.trainer->train();
    SmallJob resumed(3, options);
    resumed.trainer->resume(folder.path());
    resumed.trainer->train();
    EXPECT_EQ(weights_sha256(resumed.net), weights_sha256(whole.net));
    std::vector<double> rest;
    for (const StepReport& step : resumed.steps) rest.push_back(step.loss_scale.value());
    EXPECT_EQ(rest, std::vector<double>(scales.begin() + stop, scales.end()));
  }
}

TEST(TrainerF16, AStepThatOverflowsChangesNoParameter) {
  const TrainerOptions options{
      .epochs = 1, .max_steps = 1, .dtype = DType::f16, .loss_scaling = {.initial_scale = 0x1p30}};
  SmallJob job(2, options);
  settle_shapes(job.net, Tensor::host({1, 1, 6, 6}), job.runtime.devices()[0]);
  std::vector<std::vector<float>> before;
  for (const Parameter& p : job.net.parameters()) before.push_back(p.host_data().to_vector<float>());
  job.trainer->train();
  ASSERT_EQ(job.steps.size(), 1u);
  EXPECT_TRUE(std::isfinite(job.losses[0]));
  const auto after = job.net.parameters();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].host_data().to_vector<float>(), before[i]) << after[i].name();
  }
}

TEST(TrainerF16, RecordedStepsSkipAndScaleAsDescribedOnesDo) {
  TrainerOptions options{.epochs = 3,
                         .dtype = DType::f16,
                         .loss_scaling = {.initial_scale = 0x1p24, .growth_interval = 4},
                         .clip_norm = 0.5};
  SmallJob described(2, options);
  described.trainer->train();
  options.record_steps = true;
  SmallJob recorded(2, options);
  recorded.trainer->train();
  EXPECT_EQ(recorded.trainer->why_not_recorded(), "");
  EXPECT_EQ(recorded.losses, described.losses);
  EXPECT_EQ(weights_sha256(recorded.net), weights_sha256(described.net));
  for (std::size_t i = 0; i < described.steps.size(); ++i) {
    EXPECT_EQ(recorded.steps[i].loss_scale, described.steps[i].loss_scale) << i;
  }
}

TEST(TrainerF16, LearnsAsF32Does) {
  SmallJob f16(2, {.epochs = 10, .dtype = DType::f16}), f32(2, {.epochs = 10});
  f16.trainer->train();
  f32.trainer->train();
  for (std::size_t i = 0; i < f32.losses.size(); ++i) EXPECT_NEAR(f16.losses[i], f32.losses[i], 2e-2) << i;
  EXPECT_EQ(f16.steps.back().loss_scale, 65536);
  EXPECT_FALSE(f32.steps.back().loss_scale.has_value());
}

// Forward as its input; a gradient that is none.
class NoGradient : public Module {
 protected:
  Tensor forward(const Tensor& x) override { return x + sqrt(x - x); }
};

TEST(TrainerF16, GradientsThatAreNeverFiniteEndTheRun) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  Sequential net;
  net.append<Flatten>().append<Linear>(LinearOptions{.out_features = 5}).append<NoGradient>();
  net.initialize(Xavier{}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, sgd, random_pictures(30, 1), nullptr,
                  {.devices = runtime.devices(),
                   .batch_size = 1,
                   .epochs = 2,
                   .dtype = DType::f16,
                   .loss_scaling = {.initial_scale = 4}});
  EXPECT_ERROR(trainer.train(), "the gradients are still not finite at step 24 with the smallest loss scale");
}

}  // namespace
}  // namespace lockstep
