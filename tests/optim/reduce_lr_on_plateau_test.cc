#include "lockstep/optim/reduce_lr_on_plateau.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/optim/sgd.h"
#include "tests/expect_error.h"

namespace lockstep {
namespace {

Parameter some_parameter() { return Parameter(ParameterOptions{.shape = {1}}); }

// The rates of torch 1.13.
TEST(ReduceLROnPlateauTest, RatesOfPyTorch) {
  Sgd sgd({some_parameter()}, {.lr = 0.1});
  ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = 0.02});
  std::vector<double> rates;
  for (const double value : {3., 2., 2., 2., 2., 2., 2., 1.9999, 1., 1., 1., 1., 1.}) {
    plateau.step(value);
    rates.push_back(sgd.learning_rate());
  }
  EXPECT_EQ(rates,
            (std::vector<double>{0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.02, 0.02, 0.02}));
}

TEST(ReduceLROnPlateauTest, GoesOnFromItsState) {
  Sgd sgd({some_parameter()}, {.lr = 0.1});
  ReduceLROnPlateau first(sgd, {.larger_is_better = true, .patience = 2});
  for (const double value : {0.5, 0.4, 0.3}) EXPECT_FALSE(first.step(value));
  ReduceLROnPlateau second(sgd, {.larger_is_better = true, .patience = 2});
  second.set_state(first.state());
  EXPECT_TRUE(second.step(0.5));
  EXPECT_DOUBLE_EQ(sgd.learning_rate(), 0.01);
}

TEST(ReduceLROnPlateauTest, GoesOnFromItsValues) {
  Sgd sgd({some_parameter()}, {.lr = 0.1});
  ReduceLROnPlateau plateau(sgd, {.patience = 1});
  for (const double value : {1., 2., 2., 2.}) plateau.replay(value);
  EXPECT_EQ(sgd.learning_rate(), 0.1);
  EXPECT_TRUE(plateau.step(2));
}

// NaN is no better than nothing, as in PyTorch: the value after it is the best.
TEST(ReduceLROnPlateauTest, ANaNIsNeverTheBest) {
  Sgd sgd({some_parameter()}, {.lr = 0.1});
  ReduceLROnPlateau plateau(sgd, {.patience = 1});
  for (const double value : {std::nan(""), 3., 2., 1., 0.5}) EXPECT_FALSE(plateau.step(value));
  EXPECT_EQ(plateau.state().best, 0.5);
}

TEST(ReduceLROnPlateauTest, TwoOwnersOfARateAreAnError) {
  Sgd sgd({some_parameter()}, {.lr = exponential_lr(0.1, 0.9)});
  EXPECT_ERROR(ReduceLROnPlateau(sgd, {}), "the optimizer's learning rate is a schedule");
  // A Trainer's schedule.
  Sgd other({some_parameter()}, {.lr = 0.1});
  ReduceLROnPlateau plateau(other, {.patience = 0});
  other.set_scheduled_learning_rate(0.05);
  plateau.step(1);
  EXPECT_ERROR(plateau.step(2), "a schedule has set the rate to 0.05, and will replace a lower one");
}

}  // namespace
}  // namespace lockstep
