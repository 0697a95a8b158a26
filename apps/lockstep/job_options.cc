#include "job_options.h"

#include <cstdio>

#include "lockstep/base/environment.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/topology.h"
#include "lockstep/models/models.h"
#include "lockstep/runtime/device_list.h"

namespace lockstep::app {
namespace {

constexpr int kMostDevices = 1024;

bool is_list(const std::string& devices) { return devices != "auto" && devices != "cpu" && devices != "cuda"; }

// What a list names, or what `auto` and --num-devices find.
DeviceList wanted_devices(const JobOptions& o) {
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

}  // namespace

void notice(const std::string& text) { std::fprintf(stderr, "lockstep: %s\n", text.c_str()); }

void JobOptions::add_model(CLI::App& app) {
  app.add_option("--model", model, "The net")->check(CLI::IsMember(model_names()))->capture_default_str();
  app.add_option("--init-from", init_from, "Start weights, safetensors")->check(CLI::ExistingFile);
  app.add_option("--dtype", dtype, "Arithmetic of the heavy operations; master weights stay f32")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  app.add_flag("--tf32", tf32, "GPUs multiply f32 in TF32, with 10 bits of mantissa");
}

void JobOptions::add_devices(CLI::App& app) {
  app.add_option("--devices", devices, "cpu:0,cpu:1, cuda:0, cuda:0/0,cuda:0/1 (logical devices of a GPU), cpu or cuda (all), or "
                 "auto: GPUs where there are some")
      ->capture_default_str();
  app.add_option("--num-devices", num_devices, "N devices of the kind that auto finds; cores are split evenly")
      ->check(CLI::Range(1, kMostDevices));
  app.add_option("--threads-per-shard", threads_per_shard,
                 "CPU threads that compute one shard; part of the recipe that decides the bits "
                 "[max(1, cores of the job / V)]")
      ->check(CLI::Range(1, 1024));
  app.add_option("--cores-per-device", cores_per_device, "Cores of one CPU device [cores / devices]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--shards", shards, "V: logical shards of a batch [number of devices]")->check(CLI::Range(1, 65536));
  app.add_option("--batch-size", batch_size, "The global batch, over all devices")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
}

void JobOptions::add_data(CLI::App& app) {
  app.add_option("--data", data, "Folder with the four IDX files [the Debian package's, or LOCKSTEP_DATA]");
  app.add_option("--limit-test", limit_test, "Use the first N test images only")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
}

Job make_job(const JobOptions& o, std::shared_ptr<ProcessGroup> group) {
  Job job;
  job.group = std::move(group);
  if (o.num_devices > 0 && is_list(o.devices)) throw UsageError("--devices with a list and --num-devices exclude each other");
  const DeviceList wanted = wanted_devices(o);
  auto cores = static_cast<int>(available_cpus().size());
  if (std::string binding = binding_notice(); !binding.empty() && job.rank() == 0) notice(binding);

  // A list names the devices of the job; those in between take no cores from it, so count the ones in the list.
  job.shards = o.shards > 0 ? o.shards : wanted.count * job.world_size();
  if (job.shards < job.world_size()) {
    throw UsageError(fmt::format("--shards {} for {} ranks: expected at least one for each", job.shards, job.world_size()));
  }
  if (o.cores_per_device > cores) {
    throw UsageError(fmt::format("--cores-per-device {}: this process may use {} cores", o.cores_per_device, cores));
  }
  int threads = o.threads_per_shard > 0 ? o.threads_per_shard : std::max(1, cores * job.world_size() / job.shards);
  RuntimeOptions runtime = wanted.options;
  runtime.cores_per_device = o.cores_per_device;
  runtime.threads_per_shard = threads;
  runtime.seed = o.seed;
  runtime.tf32 = o.tf32;
  runtime.cuda_algorithms = environment("LOCKSTEP_CUDA_ALGORITHMS").value_or("");
  if (auto limit = environment_integer("LOCKSTEP_SLOW_WAIT", 1, 1 << 20)) {
    runtime.slow_wait = std::chrono::seconds(*limit);
    runtime.on_slow_wait = [](std::chrono::nanoseconds waited, const std::string& report) {
      notice(fmt::format("waited for {:.0f} s, and still wait:\n{}", std::chrono::duration<double>(waited).count(), report));
    };
  }
  try {
    job.runtime = std::make_unique<Runtime>(std::move(runtime));
    job.devices = is_list(o.devices) ? job.runtime->devices(o.devices) : job.runtime->devices();
    job.devices.resize(static_cast<std::size_t>(wanted.count));
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  job.dtype = o.dtype == "bf16" ? DType::bf16 : o.dtype == "f16" ? DType::f16 : DType::f32;
  if (job.dtype != DType::f32 && !state_of(job.devices[0], "dtype").backend->multiplies(job.dtype)) {
    if (job.dtype == DType::bf16) {
      if (job.rank() == 0) notice("this CPU has no bf16 arithmetic (neither AVX-512 BF16 nor AMX): computing in f32");
      job.dtype = DType::f32;
    } else if (job.rank() == 0) {
      notice("CPUs compute f16 in f32, rounded after each operation: as on a GPU, and slower than f32");
    }
  }
  if (!job.group) return job;
  if (job.group->backend() == "nccl" && std::ranges::none_of(job.devices, [](Device d) { return d.kind() == DeviceKind::cuda; })) {
    throw UsageError(fmt::format("--backend nccl: rank {} trains on {}, expected a GPU", job.rank(), str(job.devices)));
  }
  job.communicator = std::make_shared<Communicator>(*job.runtime, job.group, job.devices);
  if (const std::string& why = job.communicator->why_not_nccl(); !why.empty() && job.rank() == 0) {
    notice(fmt::format("gradients travel through the hosts' memory, without NCCL: {}", why));
  }
  return job;
}

std::shared_ptr<const Dataset> load_data(const JobOptions& o, bool train) {
  MnistPart part = train ? MnistPart::train : MnistPart::test;
  std::shared_ptr<const Dataset> data = std::make_shared<FashionMnist>(load_fashion_mnist(part, o.data));
  std::int64_t limit = train ? o.limit_train : o.limit_test;
  if (limit > 0) data = std::make_shared<HeadDataset>(data, limit);
  return data;
}

std::unique_ptr<Sequential> make_initialized_model(const JobOptions& o, const Job& job) {
  auto net = make_model(o.model);
  net->initialize(model_initializer(o.model), job.devices, {.seed = o.seed});
  if (!o.init_from.empty()) load_weights(o.init_from, *net);
  return net;
}

}  // namespace lockstep::app
