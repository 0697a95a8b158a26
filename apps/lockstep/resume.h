// Resuming a run from a checkpoint: the settings that come from the checkpoint, and the errors if something does not
// fit.
#pragma once

#include "apps/lockstep/options/train_options.h"
#include "lockstep/checkpoint/checkpoint_directory.h"

namespace lockstep::app {

// A run begins anew, or continues from a checkpoint.
struct Start {
  bool resumes = false;
  // Rank 0's; empty on the others, which get it when the Trainer resumes.
  CheckpointContents checkpoint = {};
};

// Collective: rank 0 decides, so only rank 0 needs the folders. Continues from the newest checkpoint of --resume. With
// `--resume auto`, with --resume and --save of one folder, and in a restarted job: from the newest one of --save, and
// begins anew without one. Sets options.resume to the checkpoint, or to "" if the run begins anew. Then fills in
// omitted settings that the checkpoint records: shards, threads per shard, and the hash of the initial weights. Also
// takes over settings that change nothing in this run: older versions put them into the recipe. Throws UsageError for
// folders that do not fit the options.
Start choose_start(TrainOptions& options, ProcessGroup& group);

// Does the same as Trainer::resume, and reports differences between recipes as command-line options.
ResumedRun resume(Trainer& trainer, CheckpointContents checkpoint);

// "; the checkpoint does not record data: this run's setting is used", or "" if it records the whole recipe.
std::string not_compared(const ResumedRun& run);

}  // namespace lockstep::app
