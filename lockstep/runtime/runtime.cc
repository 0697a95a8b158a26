#include "lockstep/runtime/runtime.h"

#include <omp.h>

#include <algorithm>

#include "lockstep/device/topology.h"

namespace lockstep {
namespace {

// A copy should not take time from computation: it runs on the cores that no device computes on, or, if there are none,
// wherever the system finds one idle.
std::vector<int> cpus_for_copies(const std::vector<std::vector<int>>& device_cpus) {
  const std::vector<int> all = available_cpus();
  std::vector<int> spare = all;
  for (const std::vector<int>& cpus : device_cpus) {
    std::erase_if(spare, [&](int cpu) { return std::ranges::find(cpus, cpu) != cpus.end(); });
  }
  return spare.empty() ? all : spare;
}

}  // namespace

DeviceState& state_of(Device device, std::string_view what) {
  check(!device.is_host(), "{}: the tensor is in host memory, expected it on a device: copy it there with to(device)",
        what);
  // A Device is only ever made from a DeviceState; see Runtime.
  return *const_cast<DeviceState*>(static_cast<const DeviceState*>(device.info()));
}

Runtime::Runtime(RuntimeOptions options) : random_(std::make_shared<RandomState>()) {
  constexpr int kMostDevices = 1024;
  check(options.cpu_devices >= 1 && options.cpu_devices <= kMostDevices, "runtime: {} CPU devices, expected 1 to {}",
        options.cpu_devices, kMostDevices);
  check(options.threads_per_shard >= 0, "runtime: {} threads per shard, expected at least 1",
        options.threads_per_shard);
  engine_ = std::make_shared<Engine>(EngineOptions{.serial = options.serial,
                                                   .cores = static_cast<int>(available_cpus().size()),
                                                   .slow_wait = options.slow_wait,
                                                   .on_slow_wait = options.on_slow_wait});
  random_->set_seed(options.seed);
  auto cpus = split_cpus(available_cpus(), options.cpu_devices, options.cores_per_device);
  threads_per_shard_ =
      options.threads_per_shard > 0 ? options.threads_per_shard : static_cast<int>(cpus.front().size());
  std::shared_ptr<Backend> backend = options.reference_backend ? make_reference_backend() : make_cpu_backend();

  const std::vector<int> copy_cpus = cpus_for_copies(cpus);
  for (int i = 0; i < options.cpu_devices; ++i) {
    auto state = std::make_shared<DeviceState>();
    state->kind = DeviceKind::cpu;
    state->index = i;
    state->name = fmt::format("cpu:{}", i);
    state->cpus = cpus[static_cast<std::size_t>(i)];
    state->model = cpu_model_name();
    state->memory_bytes = total_memory();
    state->engine = engine_;
    state->backend = backend;
    state->random = random_;
    state->memory_domain = 0;
    state->allocator = std::make_unique<CachingAllocator>(
        engine_, state->name, options.memory_limit ? options.memory_limit : state->memory_bytes);

    auto add_lane = [&](std::string lane_name, std::vector<int> lane_cpus, int threads) {
      state->contexts.push_back(std::make_unique<KernelContext>());
      KernelContext* context = state->contexts.back().get();
      context->threads = threads;
      return engine_->add_lane({.name = std::move(lane_name),
                                .device = state->name,
                                // Under a quota every group of processes would bind its threads to the first cores.
                                .cpus = limited_by_quota() ? std::vector<int>() : std::move(lane_cpus),
                                // Of the worker alone: OpenMP keeps this number per thread.
                                .on_start = [threads] { omp_set_num_threads(threads); },
                                .lane_data = context,
                                .device_bytes = state->allocator->used_bytes()});
    };
    auto cores = static_cast<int>(state->cpus.size());
    int lanes = std::max(1, cores / threads_per_shard_);
    for (int lane = 0; lane < lanes; ++lane) {
      auto first = state->cpus.begin() + lane * threads_per_shard_;
      auto last = first + std::min<std::ptrdiff_t>(threads_per_shard_, state->cpus.end() - first);
      state->compute_lanes.push_back(
          add_lane(fmt::format("compute {}", lane), std::vector<int>(first, last), threads_per_shard_));
    }
    state->copy_in_lane = add_lane("copy in", copy_cpus, 1);
    state->copy_out_lane = add_lane("copy out", copy_cpus, 1);
    state->urgent_lane = add_lane("urgent", state->cpus, 1);
    devices_.push_back(Device(state.get()));
    states_.push_back(std::move(state));
  }
}

Runtime::~Runtime() {
  try {
    engine_->wait_all();
  } catch (const Error&) {
    // Documented: whoever wants to see it synchronizes.
  }
}

Device Runtime::device(std::string_view name) const {
  for (Device device : devices_) {
    if (device.name() == name) return device;
  }
  fail("unknown device {}: there are {}", name, str(devices_));
}

std::vector<Device> Runtime::devices(std::string_view list) const {
  if (list == "cpu") return devices_;
  std::vector<Device> found;
  while (true) {
    std::size_t comma = list.find(',');
    Device next = device(list.substr(0, comma));
    check(std::find(found.begin(), found.end(), next) == found.end(), "device {} is listed twice", next.name());
    found.push_back(next);
    if (comma == std::string_view::npos) return found;
    list.remove_prefix(comma + 1);
  }
}

MemoryCounters Runtime::memory(Device device) const { return state_of(device, "memory").allocator->counters(); }

void Runtime::synchronize() { engine_->wait_all(); }

std::string str(const std::vector<Device>& devices) {
  std::string s = "[";
  for (std::size_t i = 0; i < devices.size(); ++i) s += (i ? ", " : "") + std::string(devices[i].name());
  return s + "]";
}

}  // namespace lockstep
