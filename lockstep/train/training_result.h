// What a training reports for each step, and at its end. The report of an epoch is in checkpoint/epoch_report.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/epoch_report.h"
#include "lockstep/checkpoint/training_checkpoint.h"

namespace LOCKSTEP_API lockstep {

struct StepReport {
  std::int64_t step = 0;   // from 1, over all epochs
  std::int64_t epoch = 0;  // from 1
  double loss = 0;         // mean over the global batch, before the update
  std::int64_t samples = 0;
  double learning_rate = 0;          // rate of this step
  double images_per_second = 0;      // over the last few steps
  double seconds = 0;                // since the previous report; reports of short steps come in bursts
  std::optional<double> loss_scale;  // with f16: the loss scale of this step
  std::vector<int> shares;           // how many shards each device of the job computed, rank 0's devices first
  std::int64_t batch = 0;            // position of the step in the epoch, from 1
  std::int64_t batches = 0;          // number of steps in the epoch
  NamedScalars log{};                // the means of BatchOutputs::log over the global batch
};

// Best epoch by WatchOptions, from 1; 0 if there is none.
struct BestEpoch {
  std::int64_t epoch = 0;
  // With save_best: its checkpoint in rank 0, which load_weights() loads, as it does the folder "best".
  std::filesystem::path path{};
};

// Why the output of a TrainingObserver is incomplete or, if it replaces its file as a whole, not up to date.
struct ObserverFailure {
  std::string observer;  // its label: "the log"
  std::string error;
  bool goes_on = false;

  // "the log is incomplete: log: cannot write run.jsonl: No space left on device"
  std::string str() const;
};

struct TrainingResult {
  std::int64_t steps = 0;
  bool stopped = false;        // by request_stop
  bool stopped_early = false;  // by TrainerOptions::watch
  std::vector<EpochReport> epochs;
  // Last of `epochs`, or a test of the weights if the run had nothing left to do.
  EpochReport last{};
  // Set with WatchOptions::metric. Can be an epoch from before the run was resumed.
  BestEpoch best{};
  // With TrainerOptions::resume: the run that train() continued, if there was a checkpoint.
  std::optional<ResumedRun> resumed = {};
  // One entry for each observer that could not write all of its output. Empty: all is complete.
  std::vector<ObserverFailure> failures{};
  // Best epoch before this run was resumed, if no intact checkpoint of it exists: `best` is then the best of the other
  // epochs. 0: nothing was lost. Only rank 0 sets it.
  std::int64_t lost_best = 0;
};

}  // namespace lockstep
