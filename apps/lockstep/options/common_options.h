// The options that several commands share, and the devices, data, and models that they describe.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

#include "apps/lockstep/options/command_line.h"
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/task/data_source.h"
#include "lockstep/task/run.h"
#include "lockstep/train/trainer.h"

namespace lockstep::app {

// How to choose V if the user does not.
enum class OpenShards {
  of_batch,    // the recipe's default: on CPUs a function of the batch size, on GPUs their number
  of_devices,  // one for each device, for pictures of a step
  enough,      // of_batch, or one for each device if that is more; for evaluation, whose result does not depend on V
};

struct CommonOptions {
  // What options set in structs of the library; data_options(), task_model(), and TrainOptions::trainer_options() add
  // what follows from others. workers: 0 stands for loader_threads().
  TrainerOptions trainer{.workers = 0};
  DataOptions reading;  // of --data
  TaskModel model{.name = "resnet18", .layers = 4, .width = 128, .heads = 4, .dropout = 0.1};
  std::string data;
  std::string devices = "auto";
  int num_devices = 0;
  int threads_per_shard = 0;
  int cores_per_device = 0;
  int checkpoint_shards = 0;  // those of the checkpoint from which the run resumes; 0 without one
  OpenShards open_shards = OpenShards::of_batch;
  std::string backend = "auto";  // between ranks; only `train` has the option
  bool tf32 = false;
  bool direct_conv = false;
  std::uint64_t seed = 0;
  std::string init_from;
  bool partial = false;  // load the weights that fit, and take the others from the seed
  std::string delimiter, header = "auto", normalize = "auto";
  std::vector<double> color_jitter;
  double mixup = 0, cutmix = 0;
  // Pictures, tables, or arrays that the user brings: they have defaults and options that Fashion-MNIST and texts lack.
  bool own_data = false;
  std::shared_ptr<const DataSource> source;  // what --data names, once it is read
  std::vector<std::string> metrics;
  std::vector<std::string> notices;  // about options that have no effect; make_job writes them

  bool is_language_model() const { return model.name == "gpt" || model.name == "lstm"; }
  bool is_torchvision() const { return model.name.starts_with("torchvision:"); }
  bool is_regression() const;
  bool has_convolutions() const { return !is_language_model() && model.name != "mlp"; }
  // V on CPUs if the user does not choose it: at least 16 images or 2 texts a shard.
  int shards_of_batch() const;
};

// Threads that load data of this format, if the user does not choose: pictures in files must be decoded.
int loader_threads(const DataSchema& schema);

// Like CLI::Range, but rejects NaN.
CLI::Validator number_in(double low, double high);

// A job, and what the options left open.
struct ToolJob : Job {
  int shards = 1;            // of all ranks together
  int devices_of_ranks = 1;  // their number
  DType dtype = DType::f32;
};

// A collective of the group's ranks. Chooses the devices and shards that the user omitted. Throws UsageError if there
// are fewer shards than devices of all ranks. Rank 0 writes notices to standard error, with those of the options.
ToolJob make_job(const CommonOptions& options, std::shared_ptr<ProcessGroup> group = make_local_groups(1)[0]);

// The number of cores without a shard, and the option that uses them: "8 of 16 cores idle (--threads-per-shard 2 uses
// them, with other bits)". Empty if all cores have work.
std::string idle_cores(const CommonOptions& options, const ToolJob& job);

// Whether the user gave the option; false if the command has none of that name.
bool is_given(const CLI::App& app, const std::string& option);

void notice(const std::string& text);

}  // namespace lockstep::app
