// One run on the complete real data.
#include <gtest/gtest.h>

#include "lockstep/data/fashion_mnist.h"
#include "lockstep/models/lenet.h"
#include "lockstep/models/models.h"
#include "lockstep/optim/adam.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

TEST(SlowFashionMnist, OneEpochOfLenetPassesEightyPercent) {
  Runtime runtime({.cpu_devices = 2, .threads_per_shard = 1});
  auto net = lenet();
  net->initialize(model_initializer("lenet"), runtime.devices());
  Adam adam(net->parameters(), {.lr = 2e-3});
  Trainer trainer(*net, adam, std::make_shared<FashionMnist>(load_fashion_mnist(MnistPart::train)),
                  std::make_shared<FashionMnist>(load_fashion_mnist(MnistPart::test)),
                  {.devices = runtime.devices(), .batch_size = 128, .epochs = 1});
  const TrainingResult result = trainer.train();
  EXPECT_EQ(result.steps, (60'000 + 127) / 128);
  EXPECT_EQ(result.epochs[0].test.total, 10'000);
  EXPECT_GT(result.epochs[0].test.value(), 0.80);
}

}  // namespace
}  // namespace lockstep
