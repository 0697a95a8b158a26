// Internal: the folder "best" of a save folder, which has the checkpoint of the best epoch by WatchOptions. All ranks
// know which epoch it has; rank 0 reads and writes the folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/train/training_result.h"
#include "lockstep/train/watch.h"

namespace lockstep {

class BestCheckpoint {
 public:
  // `steps`: the number of steps in an epoch.
  BestCheckpoint(WatchOptions watch, const std::filesystem::path& save_folder, std::int64_t steps);

  const std::filesystem::path& folder() const { return folder_; }
  // Collective, at the start of a training. "best" may lack the best epoch so far, because the run was killed between
  // two checkpoints or goes on in another folder. "best" may also be newer than the position of this run, which then
  // replaces it. Returns whether the best epoch is the position, and "best" lacks it: save it in folder().
  // `resumed_from`: the checkpoint from which the run was resumed, or empty.
  bool settle(Communicator& ranks, const TrainingPosition& position, const Recipe& recipe,
              const std::filesystem::path& resumed_from);
  // Adds an epoch that the training has finished. Returns whether it is the best: save it in folder().
  bool add(const EpochReport& epoch);
  // The best of the epochs that can be in "best": one whose checkpoint was lost is not among them.
  BestEpoch best() const;
  // TrainingResult::lost_best.
  std::int64_t lost() const { return lost_; }

 private:
  std::int64_t held_epoch(const TrainingPosition& position, const Recipe& recipe,
                          const std::filesystem::path& resumed_from, bool& missing);
  std::filesystem::path name_of(std::int64_t epoch) const;

  const WatchOptions watch_;
  const std::filesystem::path save_folder_, folder_;
  const std::int64_t steps_;
  std::int64_t lost_ = 0;
  std::vector<EpochReport> contenders_;  // the epoch that "best" has, and those of this run
};

}  // namespace lockstep
