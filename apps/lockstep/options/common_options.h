// The options that several commands share, and the devices, data, and models that they describe.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "apps/lockstep/options/usage_error.h"
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/run.h"
#include "lockstep/train/trainer.h"

namespace lockstep::app {

// How to choose V, the number of shards, if the user does not.
enum class OpenShards {
  of_batch,    // the recipe's default: on CPUs a function of the batch size, on GPUs the number of GPUs
  of_devices,  // one for each device, for graphs of a step
  enough,      // of_batch, or one for each device if that is more; for evaluation, whose result does not depend on V
};

struct CommonOptions {
  // Options that are fields of structs of the library; data.cc, task_model(), and TrainOptions::trainer_options() add
  // what follows from other options. workers: 0 stands for loader_threads().
  TrainerOptions trainer{.workers = 0};
  DataOptions reading;  // of --data
  TaskModel model{.name = "resnet18", .layers = 4, .width = 128, .heads = 4, .dropout = 0.1};
  std::string data;
  std::string devices = "auto";
  int num_devices = 0;
  int threads_per_shard = 0;
  int cores_per_device = 0;
  int checkpoint_shards = 0;  // number of shards of the checkpoint that the run resumes from; 0 without one
  OpenShards open_shards = OpenShards::of_batch;
  std::string backend = "auto";  // between ranks; only `train` has the option
  bool tf32 = false;
  bool direct_conv = false;
  std::uint64_t seed = 0;
  std::string init_from;
  bool partial = false;  // load the weights that fit, and initialize the rest from the seed
  std::string delimiter, header = "auto", normalize = "auto";
  std::vector<double> color_jitter;
  // True for pictures, tables, or arrays of the user: they have defaults and options that Fashion-MNIST and texts lack.
  bool own_data = false;
  std::shared_ptr<const DataSource> source;  // the data that --data names, once read
  std::vector<std::string> metrics;
  std::vector<std::string> notices;  // about options that have no effect; make_job() writes them

  bool is_language_model() const { return model.name == "gpt" || model.name == "lstm"; }
  bool is_torchvision() const { return model.name.starts_with("torchvision:"); }
  bool is_regression() const;
  bool has_convolutions() const { return !is_language_model() && model.name != "mlp"; }
  // Returns V on CPUs if the user does not choose it: at least 16 images or 2 texts for each of several shards.
  int shards_of_batch() const;
};

// Returns the model of the options. `dtype`: what a language model computes in. Other models compute in the dtype of
// their input.
TaskModel task_model(const CommonOptions& options, DType dtype = DType::f32);

// Returns the number of loader threads if the user does not choose it: more for picture files, which must be decoded.
int loader_threads(const DataSchema& schema);

// Like CLI::Range, but rejects NaN.
CLI::Validator number_in(double low, double high);

// A job, with the options that the user left open.
struct ToolJob : Job {
  int shards = 1;            // of all ranks together
  int devices_of_ranks = 1;  // number of devices of all ranks
  DType dtype = DType::f32;
};

// Collective over the group's ranks. Chooses the devices and shards that the user omitted. Throws UsageError if there
// are fewer shards than devices of all ranks. Rank 0 writes its notices and those in the options to standard error.
ToolJob make_job(const CommonOptions& options, std::shared_ptr<ProcessGroup> group = make_local_groups(1)[0]);

// Returns the number of cores without a shard, and the option that would use them: "8 of 16 cores idle
// (--threads-per-shard 2 uses them, with other bits)". Empty if all cores have work.
std::string idle_cores(const CommonOptions& options, const ToolJob& job);

// Returns whether the user gave the option; false if the command does not have it.
bool is_given(const CLI::App& app, const std::string& option);

void notice(const std::string& text);

}  // namespace lockstep::app
