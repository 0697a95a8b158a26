// Resumes a run from a checkpoint: takes settings from the checkpoint, and reports errors if something does not fit.
#pragma once

#include "apps/lockstep/options/train_options.h"
#include "lockstep/checkpoint/checkpoint_directory.h"

namespace lockstep::app {

// A run begins anew, or continues from a checkpoint.
struct Start {
  bool resumes = false;
  // Only rank 0 has it; the other ranks get it when the Trainer resumes.
  CheckpointContents checkpoint = {};
};

// Collective: rank 0 decides, so only rank 0 needs the folders. Continues from the newest checkpoint of --resume. With
// `--resume auto`, or with --resume and --save of one folder, continues from the newest one of --save, or begins anew
// without one; a restarted job looks in --save first. Sets options.resume to the checkpoint, or to "" if the run begins
// anew. Then fills in omitted settings that the checkpoint records: shards, threads per shard, and the hash of the
// initial weights. Also takes settings without an effect on this run, which older versions put into the recipe. Throws
// UsageError for folders that do not fit the options.
Start choose_start(TrainOptions& options, ProcessGroup& group);

// Does the same as Trainer::resume, but reports differences between recipes as command-line options.
ResumedRun resume(Trainer& trainer, CheckpointContents checkpoint);

// "; the checkpoint does not record data: this run's setting is used", or "" if it records the whole recipe.
std::string not_compared(const ResumedRun& run);

}  // namespace lockstep::app
