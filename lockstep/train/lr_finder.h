// Finds a learning rate for a model, its optimizer, and its data, with the range test of Smith (2017). The rate rises
// exponentially while the model trains, and the suggestion is the rate at which the loss falls most steeply.
//
//   const LearningRateCurve curve = find_learning_rate(net, sgd, train_data, {.batch_size = 64});
//   sgd.set_learning_rate(curve.suggestion);
//   const PlotPanel panels[] = {learning_rate_panel(curve)};
//   write_plot("rates.svg", panels, learning_rate_axis());
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/train/plot.h"
#include "lockstep/train/trainer.h"

namespace LOCKSTEP_API lockstep {

struct LearningRateFinderOptions {
  // Rates of the first and of the last step.
  double first = 1e-7;
  double last = 1;
  std::int64_t steps = 100;
  // The loss is smoothed as a moving average with this decay, corrected for its start.
  double smoothing = 0.98;
  // The test ends when the smoothed loss exceeds this multiple of its least value, or is not finite.
  double stop_factor = 4;
};

struct LearningRatePoint {
  double rate = 0;
  double loss = 0;  // mean over the global batch, before the update
  double smoothed = 0;
};

struct LearningRateCurve {
  // One point for each step with a finite loss.
  std::vector<LearningRatePoint> points;
  // Rate at which the smoothed loss falls most steeply over the logarithm of the rate. Leaves out the first tenth of
  // the steps (at most ten) and the last step.
  double suggestion = 0;
  bool diverged = false;  // the test ended before its last step
};

// Trains as Trainer does with these options, but ignores `epochs`, `max_steps`, `metrics`, and `schedule`. Afterwards
// the weights, the buffers, the optimizer's state and rate, and the keys of random operations are as before, so
// training has the same bits with and without the test. Depends on the recipe alone, as training does: the suggestion
// is the same on any number of devices and ranks. Collective where training is. Throws if the loss never falls, if it
// diverges within the first steps, and for options that write files.
LearningRateCurve find_learning_rate(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                                     TrainerOptions options = {}, const LearningRateFinderOptions& finder = {});

// Returns a panel for write_plot(): the smoothed loss over the decimal logarithm of the rate.
PlotPanel learning_rate_panel(const LearningRateCurve& curve);
PlotOptions learning_rate_axis();

}  // namespace lockstep
