// Saves and resumes a Trainer, together with all ranks.
#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

ResumedRun Trainer::resume(const std::filesystem::path& folder) {
  Communicator* ranks = options_.communicator.get();
  ResumedRun run;
  std::string complaint;
  std::optional<RecipeMismatch> mismatch;
  record_fixed_parts();
  try {
    run = load_checkpoint(folder, module_, optimizer_, options_.recipe, [&](const ResumedRun& found) {
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
    const std::int64_t step = ranks->gather_on_host(run.position.step, "step of the checkpoint")[0];
    if (step != run.position.step) {
      complaint = fmt::format("{}: has step {} where rank 0 has {}", run.path.string(), run.position.step, step);
    }
    ranks->agree(complaint, "checkpoints");
  }
  position_ = run.position;
  saved_step_ = position_.step;
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
                      {.keep = keep, .average = average_ ? average_->state_dict() : StateDict()});
    } catch (const std::exception& error) {
      complaint = error.what() + last_good_checkpoint();
    }
  }
  if (options_.communicator) options_.communicator->agree(complaint, "checkpoint");
  check(complaint.empty(), "{}", complaint);
  if (folder == options_.save_folder) saved_step_ = position_.step;
}

}  // namespace lockstep
