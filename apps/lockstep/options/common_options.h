// The options that several commands share, and the devices, data, and models that they describe.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/options/command_line.h"
#include "lockstep/data/dataset.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {
struct DataSchema;  // task/data_schema.h
struct DataSource;  // task/data_source.h
}  // namespace lockstep

namespace lockstep::app {

// How to choose V if the user does not.
enum class OpenShards {
  of_batch,    // the recipe's default: on CPUs a function of the batch size, on GPUs their number
  of_devices,  // one for each device, for pictures of a step
  enough,      // of_batch, or one for each device if that is more; for evaluation, whose result does not depend on V
};

struct CommonOptions {
  std::string model = "resnet18";
  std::string data;
  std::string devices = "auto";
  int num_devices = 0;
  int threads_per_shard = 0;
  int cores_per_device = 0;
  int shards = 0;
  int workers = 0;            // threads that load data; 0: loader_threads(); only `train` has the option
  int checkpoint_shards = 0;  // those of the checkpoint from which the run resumes; 0 without one
  std::int64_t batch_size = 256;
  std::int64_t accumulate = 1;  // micro-batches in a batch; only `train` has the option
  OpenShards open_shards = OpenShards::of_batch;
  std::string dtype = "f32";
  std::string backend = "auto";  // between ranks; only `train` has the option
  bool tf32 = false;
  bool direct_conv = false;
  std::uint64_t seed = 0;
  std::string init_from;
  bool partial = false;  // load the weights that fit, and take the others from the seed
  std::int64_t limit_train = 0;
  std::int64_t limit_test = 0;
  // Of data of the user's own:
  std::string format, target, task, delimiter, header = "auto";
  std::vector<std::string> ignore, categories, hidden;
  double val_split = 0.1;
  bool hash_data = false, skip_broken = false;
  std::string augment = "none";
  // Of pictures, by name; each replaces that of --augment.
  std::optional<double> random_resized_crop, horizontal_flip, vertical_flip, rotation, random_erasing;
  std::optional<std::int64_t> random_crop;
  std::vector<std::string> color_jitter;
  std::string normalize = "auto";
  std::vector<std::string> mean, stddev;
  double mixup = 0, cutmix = 0;
  std::int64_t image_size = 0, max_pixels = 0;
  // Pictures, tables, or arrays that the user brings: they have defaults and options that Fashion-MNIST and texts lack.
  bool own_data = false;
  std::shared_ptr<const DataSource> source;  // what --data names, once it is read
  // For language models:
  std::int64_t context = 128, layers = 4, heads = 4, width = 128;
  double dropout = 0.1;
  bool no_shuffle = false;
  bool drop_last = false;
  std::vector<std::string> metrics;
  std::vector<std::string> notices;  // about options that have no effect; make_job writes them

  bool is_language_model() const { return model == "gpt" || model == "lstm"; }
  bool is_torchvision() const { return model.starts_with("torchvision:"); }
  bool is_regression() const;
  bool has_convolutions() const { return !is_language_model() && model != "mlp"; }
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
