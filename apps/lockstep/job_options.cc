#include "job_options.h"

#include <cstdio>

#include "lockstep/base/environment.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/device/topology.h"
#include "lockstep/models/models.h"

namespace lockstep::app {
namespace {

constexpr int kMostDevices = 1024;

// The number of CPU devices that a list like "cpu:0,cpu:3" needs, and a canonical list.
int devices_needed(const std::string& list) {
  int most = 0;
  std::string rest = list;
  while (true) {
    std::size_t comma = rest.find(',');
    std::string item = rest.substr(0, comma);
    if (item.rfind("cuda", 0) == 0) {
      throw UsageError(fmt::format("unknown device {}: this build has no CUDA back end, there are cpu:0, cpu:1, ...", item));
    }
    std::string digits = item.rfind("cpu:", 0) == 0 ? item.substr(4) : "";
    bool number = !digits.empty() && digits.size() <= 4 && digits.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoi(digits) >= kMostDevices) {
      throw UsageError(fmt::format("unknown device '{}' in '{}': expected cpu:0 to cpu:{}, comma-separated, or cpu or auto",
                                   item, list, kMostDevices - 1));
    }
    most = std::max(most, std::stoi(digits) + 1);
    if (comma == std::string::npos) return most;
    rest = rest.substr(comma + 1);
  }
}

}  // namespace

void notice(const std::string& text) { std::fprintf(stderr, "lockstep: %s\n", text.c_str()); }

void JobOptions::add_model(CLI::App& app) {
  app.add_option("--model", model, "The net")->check(CLI::IsMember(model_names()))->capture_default_str();
  app.add_option("--init-from", init_from, "Start weights, safetensors")->check(CLI::ExistingFile);
  app.add_option("--dtype", dtype, "Arithmetic of the heavy operations; master weights stay f32")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
}

void JobOptions::add_devices(CLI::App& app) {
  app.add_option("--devices", devices, "cpu:0,cpu:1, cpu (all) or auto")->capture_default_str();
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
  if (o.num_devices > 0 && o.devices != "auto" && o.devices != "cpu") {
    throw UsageError("--devices with a list and --num-devices exclude each other");
  }
  bool listed = o.devices != "auto" && o.devices != "cpu";
  int count = listed ? devices_needed(o.devices) : std::max(o.num_devices, 1);
  auto cores = static_cast<int>(available_cpus().size());
  if (std::string binding = binding_notice(); !binding.empty() && job.rank() == 0) notice(binding);

  // A list names the devices of the job; those in between take no cores from it, so count the ones in the list.
  int used = listed ? 1 + static_cast<int>(std::count(o.devices.begin(), o.devices.end(), ',')) : count;
  job.shards = o.shards > 0 ? o.shards : used * job.world_size();
  if (job.shards < job.world_size()) {
    throw UsageError(fmt::format("--shards {} for {} ranks: expected at least one for each", job.shards, job.world_size()));
  }
  if (o.cores_per_device > cores) {
    throw UsageError(fmt::format("--cores-per-device {}: this process may use {} cores", o.cores_per_device, cores));
  }
  int threads = o.threads_per_shard > 0 ? o.threads_per_shard : std::max(1, cores * job.world_size() / job.shards);
  RuntimeOptions runtime{.cpu_devices = count,
                         .cores_per_device = o.cores_per_device,
                         .threads_per_shard = threads,
                         .seed = o.seed};
  if (auto limit = environment_integer("LOCKSTEP_SLOW_WAIT", 1, 1 << 20)) {
    runtime.slow_wait = std::chrono::seconds(*limit);
    runtime.on_slow_wait = [](std::chrono::nanoseconds waited, const std::string& report) {
      notice(fmt::format("waited for {:.0f} s, and still wait:\n{}", std::chrono::duration<double>(waited).count(), report));
    };
  }
  job.runtime = std::make_unique<Runtime>(std::move(runtime));
  try {
    job.devices = listed ? job.runtime->devices(o.devices) : job.runtime->devices();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  if (o.dtype == "bf16") {
    job.dtype = DType::bf16;
    if (!state_of(job.devices[0], "dtype").backend->native_bf16()) {
      if (job.rank() == 0) notice("this CPU has no bf16 arithmetic (neither AVX-512 BF16 nor AMX): computing in f32");
      job.dtype = DType::f32;
    }
  }
  if (job.group) job.communicator = std::make_shared<Communicator>(*job.runtime, job.group);
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
