// Lowers learning rates when a metric stops getting better.
//
//   ReduceLROnPlateau plateau(sgd, {.factor = 0.1, .patience = 5});
//   if (const auto run = trainer.resume_or_start()) {  // not TrainerOptions::resume
//     for (const EpochReport& e : run->position.epochs) plateau.replay(e.train_loss);
//   }
//   trainer.on_epoch = [&](const EpochReport& e) { plateau.step(e.train_loss); };
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

struct ReduceLROnPlateauOptions {
  // False: a smaller value is better, PyTorch's mode "min". True: a larger one.
  bool larger_is_better = false;
  // Multiplies the rates.
  double factor = 0.1;
  // Number of values in a row without improvement that are tolerated; the next such value lowers the rates.
  std::int64_t patience = 10;
  // A value is better only if it beats the best value by more than this share of it, or with `absolute` by this amount.
  double threshold = 1e-4;
  bool absolute = false;
  // The number of values after a fall that do not count.
  std::int64_t cooldown = 0;
  // The least rate of the optimizer. A change by at most `eps` is not made.
  double min_lr = 0;
  double eps = 1e-8;
};

// torch.optim.lr_scheduler.ReduceLROnPlateau. Sets the optimizer's rate; its groups keep their ratios. Throws if the
// optimizer's rate is a schedule. All ranks must give the same values, as those of EpochReport are. Its options decide
// the bits: name them in TrainerOptions::recipe.
class ReduceLROnPlateau {
 public:
  // The optimizer must outlive this object.
  ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  // No copies: they would set the rate of one optimizer.
  ReduceLROnPlateau(ReduceLROnPlateau&&) = default;
  ReduceLROnPlateau& operator=(ReduceLROnPlateau&&) = delete;

  // Takes the next value. Returns whether the rates fell. Throws if they are to fall and a schedule, such as a
  // Trainer's, has set them.
  bool step(double value);
  // Takes a value of a run that is continued. The rates stay: the optimizer's checkpoint has them.
  void replay(double value);

  // What a checkpoint needs beside the optimizer's state, which has the rates.
  struct State {
    std::optional<double> best;
    std::int64_t bad = 0;      // values in a row that were no better
    std::int64_t cooling = 0;  // values that will not count
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool is_better(double value) const;
  // Takes a value. Returns whether the rates are to fall.
  bool falls(double value);

  Optimizer& optimizer_;
  const ReduceLROnPlateauOptions options_;
  State state_;
};

}  // namespace lockstep
