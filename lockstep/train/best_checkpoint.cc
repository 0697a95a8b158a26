#include "lockstep/train/best_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_directory.h"

namespace lockstep {

BestCheckpoint::BestCheckpoint(WatchOptions watch, const std::filesystem::path& save_folder, std::int64_t steps)
    : watch_(std::move(watch)), save_folder_(save_folder), folder_(save_folder / "best"), steps_(steps) {}

std::filesystem::path BestCheckpoint::name_of(std::int64_t epoch) const {
  return fmt::format("step-{:08}", epoch * steps_);
}

// Returns the epoch whose checkpoint "best" has; 0 if it has none that this run has reached. Sets `missing` if the best
// epoch is the position, and "best" lacks it. Sets lost_ to the best epoch if no checkpoint of it is left.
std::int64_t BestCheckpoint::held_epoch(const TrainingPosition& position, const Recipe& recipe,
                                        const std::filesystem::path& resumed_from, bool& missing) {
  std::int64_t held = 0;
  const auto epoch_of = [&](std::int64_t step) {
    return step % steps_ == 0 && step <= position.step ? step / steps_ : std::int64_t{0};
  };
  if (const auto latest = find_latest_checkpoint(folder_).checkpoint) {
    try {
      check_recipe(read_checkpoint(latest->path), recipe);
    } catch (const RecipeMismatch& error) {
      fail("{}: holds the best checkpoint of another run: use another folder ({})", folder_.string(), error.what());
    }
    held = epoch_of(latest->step);
  }
  const std::int64_t best = best_epoch(position.epochs, watch_);
  if (best == 0 || held == best) return held;
  missing = best == position.epoch && position.batch == 0;
  if (missing) return best;
  // The run goes on in another folder than that in which it began, or "best" is damaged or gone. The save folder may
  // still have a checkpoint of that step.
  const std::filesystem::path name = name_of(best), began = resumed_from.parent_path();
  for (const std::filesystem::path& source : {began / "best" / name, began / name, save_folder_ / name}) {
    if (resumed_from.empty() || !std::filesystem::exists(source)) continue;
    std::optional<CheckpointContents> contents;
    try {
      contents = read_checkpoint(source);
    } catch (const std::exception&) {
      continue;  // damaged: the other sources are as good
    }
    copy_checkpoint(*contents, folder_, {.keep = 1, .replace_later = true});
    return best;
  }
  lost_ = best;
  return held;
}

bool BestCheckpoint::settle(Communicator& ranks, const TrainingPosition& position, const Recipe& recipe,
                            const std::filesystem::path& resumed_from) {
  std::int64_t epoch = 0;
  bool missing = false;
  lost_ = 0;
  ranks.agree("best checkpoint", [&] {
    if (ranks.rank() == 0) epoch = held_epoch(position, recipe, resumed_from, missing);
  });
  epoch = ranks.gather_on_host(epoch, "epoch of the best checkpoint")[0];
  missing = ranks.gather_on_host(missing ? 1 : 0, "best checkpoint to write")[0] != 0;
  contenders_.clear();
  const auto record = std::ranges::find(position.epochs, epoch, &EpochReport::epoch);
  if (record != position.epochs.end()) contenders_.push_back(*record);
  return missing;
}

bool BestCheckpoint::add(const EpochReport& epoch) {
  contenders_.push_back(epoch);
  return best_epoch(contenders_, watch_) == epoch.epoch;
}

BestEpoch BestCheckpoint::best() const {
  BestEpoch best{best_epoch(contenders_, watch_)};
  if (best.epoch > 0) best.path = folder_ / name_of(best.epoch);
  return best;
}

}  // namespace lockstep
