#include "apps/lockstep/options/common_options.h"

#include <algorithm>
#include <cstdio>

#include "apps/lockstep/output.h"
#include "lockstep/backend/backend.h"
#include "lockstep/base/environment.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/topology.h"
#include "lockstep/parallel/split.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::app {
namespace {

bool is_list(const std::string& devices) { return devices != "auto" && devices != "cpu" && devices != "cuda"; }

// Returns the devices that a list names, or that `auto` and --num-devices find.
DeviceList wanted_devices(const CommonOptions& o) {
  if (is_list(o.devices)) {
    try {
      return parse_device_list(o.devices);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  const int count = std::max(o.num_devices, 1);
  if (o.devices == "cpu") return {count, {.cpu_devices = count}};
  DeviceList found = find_devices(o.num_devices);
  if (o.devices == "cuda" && found.options.cuda.empty()) {
    throw UsageError("--devices cuda: there is no GPU: " + find_gpus().why_none);
  }
  return found;
}

// Returns the number of devices of all ranks, which may have different numbers. Counts the devices that a list names:
// those that it skips compute nothing. Collective.
int devices_of_all_ranks(const DeviceList& wanted, ProcessGroup& group) {
  std::int64_t devices = wanted.count;
  group.all_reduce({&devices, 1, DType::i64}, ReduceOp::sum, {.label = "number of devices", .wait = true});
  return static_cast<int>(devices);
}

// Returns V of the recipe. By default it depends on the batch alone, so that the bits do not depend on the devices.
int shards_of(const CommonOptions& o, const DeviceList& wanted, int devices, int ranks) {
  const bool gpus = !wanted.options.cuda.empty() || wanted.options.cuda_logical > 0;
  const std::int64_t batch = o.trainer.batch_size / o.trainer.accumulate;
  if (o.trainer.split.shards == 0 && (gpus || o.open_shards == OpenShards::of_devices)) return devices;
  const int shards = o.trainer.split.shards > 0 ? o.trainer.split.shards : o.shards_of_batch();
  if (shards >= devices) return shards;
  if (o.trainer.split.shards == 0 && o.open_shards == OpenShards::enough) return devices;
  const std::string of = ranks > 1 ? fmt::format(" of {} ranks", ranks) : "";
  const char* s = shards == 1 ? "" : "s";
  const std::string found =
      o.trainer.split.shards == 0                     ? fmt::format("a batch of {} makes {} shard{}", batch, shards, s)
      : o.trainer.split.shards == o.checkpoint_shards ? fmt::format("the checkpoint has {} shard{}", shards, s)
                                                      : fmt::format("--shards {}", shards);
  const std::string help =
      o.checkpoint_shards > 0
          ? fmt::format("A resumed run keeps its checkpoint's number of shards, {}: use no more devices",
                        o.checkpoint_shards)
          : fmt::format(
                "--shards {} gives each device one, with other bits: the number of shards is part of the "
                "recipe",
                devices);
  throw UsageError(fmt::format("{} for {} devices{}: expected at least one for each. {}", found, devices, of, help));
}

}  // namespace

std::string idle_cores(const CommonOptions& o, const ToolJob& job) {
  if (job.devices()[0].kind() != DeviceKind::cpu) return "";
  const bool decide_bits = state_of(job.devices()[0], "cores").backend->threads_decide_bits(job.dtype);
  if (o.threads_per_shard == 0 && !decide_bits) return "";
  const int devices = static_cast<int>(job.devices().size());
  const int cores = o.cores_per_device > 0 ? o.cores_per_device * devices : static_cast<int>(available_cpus().size());
  const int ranks = job.world_size(), threads = job.runtime().threads_per_shard();
  const int busy = job.shards * threads / ranks;
  if (busy >= cores) return "";
  const int wider = cores * ranks / job.shards;
  const bool same_bits = wider > threads && !decide_bits;
  return fmt::format(
      "{} of {} cores idle (--{} uses them, with {} bits)", cores - busy, cores,
      wider > threads ? fmt::format("threads-per-shard {}", wider) : fmt::format("shards {}", cores * ranks / threads),
      same_bits ? "the same" : "other");
}

void notice(const std::string& text) { print_text(stderr, "lockstep: " + text + "\n"); }

CLI::Validator number_in(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value)) return fmt::format("{} is not a number", text);
        bool fits = value >= low && value <= high;
        return fits ? std::string() : fmt::format("{} is not in [{} - {}]", text, low, high);
      },
      fmt::format("FLOAT in [{} - {}]", low, high));
}

bool is_given(const CLI::App& app, const std::string& option) {
  const CLI::Option* found = app.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

bool CommonOptions::is_regression() const { return source && source->schema.task == lockstep::TaskKind::regression; }

int CommonOptions::shards_of_batch() const {
  const std::int64_t batch = trainer.batch_size / trainer.accumulate;
  // A window of a text is as much work as eight pictures.
  return default_shards(is_language_model() ? 8 * batch : batch);
}

TaskModel task_model(const CommonOptions& o, DType dtype) {
  TaskModel model = o.model;
  if (!o.is_language_model()) return {.name = model.name, .hidden = model.hidden};
  if (model.name != "gpt") {
    model.heads = 0;
  } else if (model.width % model.heads != 0) {
    throw UsageError(fmt::format("--width {}: not divisible by --heads {}", model.width, model.heads));
  }
  model.dtype = dtype;
  return model;
}

int loader_threads(const DataSchema& schema) {
  constexpr std::size_t kMost = 8;
  return schema.format == DataFormat::images ? static_cast<int>(std::min(available_cpus().size(), kMost)) : 1;
}

ToolJob make_job(const CommonOptions& o, std::shared_ptr<ProcessGroup> group) {
  if (o.num_devices > 0 && is_list(o.devices))
    throw UsageError("--devices with a list and --num-devices cannot be combined");
  const DeviceList wanted = wanted_devices(o);
  const bool first = group->rank() == 0;
  auto cores = static_cast<int>(available_cpus().size());
  if (std::string binding = binding_notice(); !binding.empty() && first) notice(binding);
  if (first) std::ranges::for_each(o.notices, notice);
  if (first) {
    for (const std::string& why : wanted.left_out) notice("a GPU is left out: " + why);
  }

  const int devices_of_ranks = devices_of_all_ranks(wanted, *group);
  const int shards = shards_of(o, wanted, devices_of_ranks, group->size());
  if (o.cores_per_device > cores) {
    throw UsageError(fmt::format("--cores-per-device {}: this process may use {} cores", o.cores_per_device, cores));
  }
  RuntimeOptions settings = wanted.options;
  settings.cores_per_device = o.cores_per_device;
  if (o.threads_per_shard > 0) settings.threads_per_shard = o.threads_per_shard;
  settings.seed = o.seed;
  settings.direct_conv = o.direct_conv;
  settings.tf32 = o.tf32;
  settings.cuda_algorithms = environment("LOCKSTEP_CUDA_ALGORITHMS").value_or("");
  if (auto limit = environment_integer("LOCKSTEP_SLOW_WAIT", 1, 1 << 20)) {
    settings.slow_wait = std::chrono::seconds(*limit);
    settings.on_slow_wait = [](std::chrono::nanoseconds waited, const std::string& report) {
      notice(fmt::format("still waiting after {:.0f} s:\n{}", std::chrono::duration<double>(waited).count(), report));
    };
  }
  std::unique_ptr<Runtime> runtime;
  std::vector<Device> devices;
  try {
    runtime = std::make_unique<Runtime>(std::move(settings));
    devices = is_list(o.devices) ? runtime->devices(o.devices) : runtime->devices();
    devices.resize(static_cast<std::size_t>(wanted.count));
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  DType dtype = o.trainer.dtype;
  if (dtype != DType::f32 && !state_of(devices[0], "dtype").backend->multiplies(dtype)) {
    if (dtype == DType::bf16) {
      if (first) notice("this CPU has no bf16 arithmetic (neither AVX-512 BF16 nor AMX): computing in f32");
      dtype = DType::f32;
    } else if (first) {
      notice("CPUs compute f16 in f32 and round after each operation, as a GPU does: this is slower than f32");
    }
  }
  const auto has = [&](DeviceKind kind) { return std::ranges::count(devices, kind, &Device::kind) > 0; };
  if (o.backend == "nccl" && !has(DeviceKind::cuda)) {
    throw UsageError(fmt::format("--backend nccl: rank {} trains on {}, expected a GPU", group->rank(), str(devices)));
  }
  if (first) {
    const auto changes_nothing = [&](const char* option, const char* place) {
      notice(fmt::format("{} changes nothing on {}: it is for {}", option, str(devices), place));
    };
    if (o.tf32 && o.trainer.dtype != DType::f32) {
      notice(fmt::format("--tf32 is for products of f32: layers compute in {}", name(o.trainer.dtype)));
    } else if (o.tf32 && !has(DeviceKind::cuda)) {
      changes_nothing("--tf32", "GPUs");
    }
    if (o.direct_conv && !has(DeviceKind::cpu)) changes_nothing("--direct-conv", "CPUs");
  }
  ToolJob job{Job(std::move(group), std::move(runtime), std::move(devices)), shards, devices_of_ranks, dtype};
  if (const std::string& why = job.communicator()->why_not_nccl(); !why.empty() && first) {
    notice(fmt::format("gradients travel through host memory, without NCCL: {}", why));
  }
  return job;
}

}  // namespace lockstep::app
