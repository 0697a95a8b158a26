// Saves and resumes a Trainer, together with all ranks.
#include <algorithm>
#include <map>

#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/watch.h"

namespace lockstep {

ResumedRun Trainer::resume(const std::filesystem::path& folder) {
  CheckpointContents checkpoint;
  std::string complaint;
  if (rank() == 0) {
    try {
      checkpoint = read_checkpoint(folder);
    } catch (const std::exception& error) {
      if (!options_.communicator) throw;
      complaint = error.what();
    }
  }
  if (options_.communicator) options_.communicator->agree(complaint, "checkpoint to resume from");
  return resume(std::move(checkpoint));
}

std::optional<ResumedRun> Trainer::resume_or_start() {
  check(!options_.save_folder.empty(), "trainer: resume_or_start() without TrainerOptions::save_folder");
  Communicator* ranks = options_.communicator.get();
  std::optional<CheckpointContents> found;
  std::string complaint;
  if (rank() == 0) {
    try {
      found = find_checkpoint(options_.save_folder);
    } catch (const std::exception& error) {
      if (!ranks) throw;
      complaint = error.what();
    }
  }
  bool resumes = found.has_value();
  if (ranks) {
    ranks->agree(complaint, "checkpoint to resume from");
    resumes = ranks->gather_on_host(resumes ? 1 : 0, "resumes or starts")[0] != 0;
  }
  if (!resumes) return std::nullopt;
  return resume(found ? std::move(*found) : CheckpointContents());
}

// Sends rank 0's checkpoint to the others.
void Trainer::share(CheckpointContents& checkpoint) const {
  Communicator& ranks = *options_.communicator;
  const auto number = [&](std::int64_t mine) { return ranks.gather_on_host(mine, "checkpoint to resume from")[0]; };
  const auto text = [&](std::string mine) {
    return ranks.broadcast_on_host(std::move(mine), "checkpoint to resume from");
  };
  checkpoint.path = text(checkpoint.path.string());
  checkpoint.step = number(checkpoint.step);
  checkpoint.damaged.resize(static_cast<std::size_t>(number(std::ssize(checkpoint.damaged))));
  for (std::string& error : checkpoint.damaged) error = text(error);
  std::vector<std::string> names;
  for (const auto& [name, contents] : checkpoint.files) names.push_back(name);
  names.resize(static_cast<std::size_t>(number(std::ssize(names))));
  std::map<std::string, std::string> files;
  for (const std::string& mine : names) {
    const std::string name = text(mine);
    files[name] = text(std::move(checkpoint.files[name]));
  }
  checkpoint.files = std::move(files);
}

ResumedRun Trainer::resume(CheckpointContents checkpoint) {
  Communicator* ranks = options_.communicator.get();
  if (ranks) share(checkpoint);
  ResumedRun run;
  std::string complaint;
  std::optional<RecipeMismatch> mismatch;
  record_fixed_parts();
  try {
    run = load_checkpoint(std::move(checkpoint), module_, optimizer_, options_.recipe, [&](const ResumedRun& found) {
      try {
        if (scaler_) {
          check(found.position.loss_scaler.has_value(), "the checkpoint has no loss scale");
          scaler_->check_state(*found.position.loss_scaler);
        }
        if (average_) average_->check_state_dict(found.average);
      } catch (const Error& error) {
        fail("{}: {}", found.path.string(), error.what());
      }
    });
    if (scaler_) scaler_->set_state(*run.position.loss_scaler);
    if (average_) average_->load_state_dict(run.average);
    if (keeps_learning_rate() && run.position.learning_rate) {
      optimizer_.set_learning_rate(*run.position.learning_rate);
    }
  } catch (const RecipeMismatch& error) {
    if (!ranks) throw;
    mismatch = error;
    complaint = error.what();
  } catch (const std::exception& error) {
    if (!ranks) throw;
    complaint = error.what();
  }
  if (ranks) {
    try {
      ranks->agree(complaint, "checkpoints");
    } catch (const CommError&) {
      throw;
    } catch (const Error& error) {
      if (mismatch) throw RecipeMismatch(error.what(), mismatch->file, mismatch->differences);
      throw;
    }
  }
  position_ = run.position;
  saved_step_ = position_.step;
  resumed_from_ = run.path;
  return run;
}

// Reports a folder that cannot be written to, or that another run uses, now instead of at the first checkpoint.
std::unique_ptr<FolderClaim> Trainer::claim_save_folder() const {
  const std::filesystem::path& folder = options_.save_folder;
  if (folder.empty()) return nullptr;
  std::unique_ptr<FolderClaim> claim;
  std::string complaint;
  if (rank() == 0) {
    try {
      claim = std::make_unique<FolderClaim>(folder, position_.step);
    } catch (const std::exception& error) {
      if (!options_.communicator) throw;
      complaint = error.what();
    }
  }
  if (options_.communicator) options_.communicator->agree(complaint, "checkpoint folder");
  return claim;
}

// The epoch whose checkpoint "best" has; 0 if it has none that this run has reached. `missing`: it lacks the best
// epoch, which is the current position. `lost`: the best epoch, if nothing has its checkpoint any more.
std::int64_t Trainer::epoch_in_best(bool& missing, std::int64_t& lost) const {
  const TrainerOptions& o = options_;
  std::int64_t held = 0;
  const std::int64_t steps = steps_of(loader_.size());
  const auto epoch_of = [&](std::int64_t step) {
    return step % steps == 0 && step <= position_.step ? step / steps : std::int64_t{0};
  };
  if (const auto latest = find_latest_checkpoint(best_folder()).checkpoint) {
    try {
      check_recipe(read_checkpoint(latest->path), o.recipe);
    } catch (const RecipeMismatch& error) {
      fail("{}: holds the best checkpoint of another run: use another folder ({})", best_folder().string(),
           error.what());
    }
    held = epoch_of(latest->step);
  }
  const std::int64_t best = best_epoch(position_.epochs, o.watch);
  if (best == 0 || held == best) return held;
  missing = best == position_.epoch && position_.batch == 0;
  if (missing) return best;
  // The run goes on in another folder than the one in which it began, or "best" is damaged or gone. The save folder may
  // still have a checkpoint of that step.
  const std::string name = fmt::format("step-{:08}", best * steps);
  const std::filesystem::path began = resumed_from_.parent_path();
  for (const std::filesystem::path& source : {began / "best" / name, began / name, o.save_folder / name}) {
    if (resumed_from_.empty() || !std::filesystem::exists(source)) continue;
    std::optional<CheckpointContents> contents;
    try {
      contents = read_checkpoint(source);
    } catch (const std::exception&) {
      continue;  // damaged: the others are as good
    }
    copy_checkpoint(*contents, best_folder(), {.keep = 1, .replace_later = true});
    return best;
  }
  lost = best;
  return held;
}

// Collective. "best" may lack the best epoch so far: the run was killed between two checkpoints, or goes on in another
// folder. It may also be ahead of this run, which then replaces it.
void Trainer::settle_best() {
  if (!options_.watch.save_best) return;
  Communicator* ranks = options_.communicator.get();
  std::int64_t epoch = 0;
  bool missing = false;
  lost_best_ = 0;
  std::string complaint;
  if (rank() == 0) {
    try {
      epoch = epoch_in_best(missing, lost_best_);
    } catch (const std::exception& error) {
      if (!ranks) throw;
      complaint = error.what();
    }
  }
  if (ranks) {
    ranks->agree(complaint, "best checkpoint");
    epoch = ranks->gather_on_host(epoch, "epoch of the best checkpoint")[0];
    missing = ranks->gather_on_host(missing ? 1 : 0, "best checkpoint to write")[0] != 0;
  }
  contenders_.clear();
  const auto record = std::ranges::find(position_.epochs, epoch, &EpochRecord::epoch);
  if (record != position_.epochs.end()) contenders_.push_back(*record);
  if (missing) save_best();
}

// The end of an error message: names the last good checkpoint.
std::string Trainer::last_good_checkpoint() const {
  if (options_.save_folder.empty()) return "";
  if (saved_step_ < 0) return "; there is no checkpoint yet";
  return fmt::format("; the last good checkpoint is that of step {}", saved_step_);
}

void Trainer::save(const std::filesystem::path& folder, int keep) {
  if (scaler_) position_.loss_scaler = scaler_->state();
  if (keeps_learning_rate()) position_.learning_rate = optimizer_.learning_rate();
  std::string complaint;
  if (rank() == 0) {
    try {
      save_checkpoint(folder, module_, optimizer_, position_, options_.recipe,
                      {.keep = keep,
                       .average = average_ ? average_->state_dict() : StateDict(),
                       .replace_later = folder != options_.save_folder});
    } catch (const std::exception& error) {
      complaint = error.what() + last_good_checkpoint();
    }
  }
  if (options_.communicator) options_.communicator->agree(complaint, "checkpoint");
  check(complaint.empty(), "{}", complaint);
  if (folder == options_.save_folder) saved_step_ = position_.step;
}

}  // namespace lockstep
