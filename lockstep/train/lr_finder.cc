#include "lockstep/train/lr_finder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/plain_math.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"

namespace lockstep {
namespace {

void check_options(const TrainerOptions& o, const LearningRateFinderOptions& f) {
  check(f.first > 0 && f.first < f.last && std::isfinite(f.last),
        "find_learning_rate: rates from {} to {}, expected a positive one and a larger one", f.first, f.last);
  constexpr std::int64_t kFewest = 10;
  check(f.steps >= kFewest, "find_learning_rate: {} steps, expected at least {}", f.steps, kFewest);
  check(f.smoothing >= 0 && f.smoothing < 1 && f.stop_factor > 1,
        "find_learning_rate: smoothing {}, stop_factor {}, expected at least 0 and below 1, and above 1", f.smoothing,
        f.stop_factor);
  check(o.save_folder.empty() && !o.resume && o.log_file.empty() && o.tensorboard.folder.empty() &&
            o.receipt.file.empty(),
        "find_learning_rate: save_folder, resume, log_file, tensorboard, or receipt is set, expected none: it keeps "
        "nothing");
  check(o.watch.metric.empty() && o.average_decay == 0,
        "find_learning_rate: watch or average_decay is set, expected none: it tests nothing");
  check(!is_scheduled(o.schedule), "find_learning_rate: schedule is set, expected none: the rates are its own");
}

// What training changes, kept to restore it.
class TrainingState {
 public:
  TrainingState(Module& module, Optimizer& optimizer)
      : module_(module), optimizer_(optimizer), weights_(state_dict(module)), moments_(optimizer.state_dict()),
        random_(state_of(module.devices().at(0), "find_learning_rate").random()), position_(random_->position()) {
    for (const auto& [name, m] : module.named_modules()) modes_.emplace_back(m, m->training());
  }
  void restore() {
    load_state_dict(module_, weights_);
    optimizer_.load_state_dict(moments_);
    random_->set_position(position_);
    // train() and eval() of a module switch its children, too, one of which may have a mode of its own, or two parents.
    // Each pass settles at least the first module that differs; a train() of a class may refuse its mode.
    bool changed = true;
    for (std::size_t pass = 0; changed && pass < modes_.size(); ++pass) {
      changed = false;
      for (const auto& [module, training] : modes_) {
        if (module->training() == training) continue;
        module->train(training);
        changed = true;
      }
    }
  }

 private:
  Module& module_;
  Optimizer& optimizer_;
  StateDict weights_, moments_;
  std::shared_ptr<RandomState> random_;
  RandomState::Position position_;
  std::vector<std::pair<Module*, bool>> modes_;
};

double steepest(const LearningRateCurve& curve, std::int64_t steps) {
  const auto& points = curve.points;
  const auto begin = static_cast<std::size_t>(std::min<std::int64_t>(10, steps / 10));
  check(points.size() >= begin + 4,
        "find_learning_rate: the loss diverges at the rate {}, step {}, expected a smaller first rate",
        points.empty() ? 0 : points.back().rate, points.size());
  // Slope over the rates' logarithms, which are equally spaced.
  const auto slope = [&](std::size_t i) { return points[i + 1].smoothed - points[i - 1].smoothed; };
  std::size_t best = begin + 1;
  for (std::size_t i = best + 1; i + 2 < points.size(); ++i) {
    if (slope(i) < slope(best)) best = i;
  }
  check(slope(best) < 0, "find_learning_rate: the loss never falls between the rates {} and {}", points.front().rate,
        points.back().rate);
  return points[best].rate;
}

}  // namespace

LearningRateCurve find_learning_rate(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                                     TrainerOptions options, const LearningRateFinderOptions& finder) {
  check(train != nullptr && train->size() > 0, "find_learning_rate: the data set is empty");
  check_options(options, finder);
  const double range = plain_log(finder.last / finder.first), last = static_cast<double>(finder.steps - 1);
  options.metrics.clear();
  options.max_steps = finder.steps;
  options.epochs = finder.steps;  // each has at least one step
  options.schedule = {.base_lr = finder.first, .lr_lambda = [=](std::int64_t step) {
                        return plain_exp(range * static_cast<double>(step) / last);
                      }};
  if (!std::ranges::all_of(module.parameters(), &Parameter::shape_known)) {
    check(
        !options.forward && !options.collate,
        "find_learning_rate: parameters without known shapes, expected a model that has seen a batch, or no `forward` "
        "and `collate`");
    const std::int64_t index = 0;
    const RandomKey key{};
    settle_shapes(module, train->batch({&index, 1}, {&key, 1}).at(0), module.devices().at(0));
  }
  TrainingState before(module, optimizer);
  LearningRateCurve curve;
  try {
    Trainer trainer(module, optimizer, std::move(train), nullptr, std::move(options));
    double sum = 0, weight = 1, least = 0;
    trainer.on_step = [&](const StepReport& report) {
      if (curve.diverged) return;
      sum = finder.smoothing * sum + (1 - finder.smoothing) * report.loss;
      weight *= finder.smoothing;
      const double smoothed = sum / (1 - weight);
      least = curve.points.empty() ? smoothed : std::min(least, smoothed);
      curve.points.push_back({report.learning_rate, report.loss, smoothed});
      curve.diverged = smoothed > finder.stop_factor * least;
      if (curve.diverged) trainer.request_stop();
    };
    trainer.train();
  } catch (const NonFiniteLoss&) {
    curve.diverged = true;
  } catch (...) {
    before.restore();
    throw;
  }
  before.restore();
  curve.suggestion = steepest(curve, finder.steps);
  return curve;
}

PlotPanel learning_rate_panel(const LearningRateCurve& curve) {
  Curve line{.name = "smoothed loss"};
  for (const LearningRatePoint& p : curve.points) line.points.push_back({std::log10(p.rate), p.smoothed});
  return {.curves = {std::move(line)}};
}

PlotOptions learning_rate_axis() {
  return {.title = "learning rate", .x = {.name = "decimal logarithm of the learning rate"}};
}

}  // namespace lockstep
