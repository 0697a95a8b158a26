#include "lockstep/runtime/runtime.h"

#include <algorithm>
#include <utility>

#include "lockstep/backend/openmp_threads.h"
#include "lockstep/device/cgroup.h"
#include "lockstep/device/topology.h"
#include "lockstep/runtime/living_runtimes.h"
#include "lockstep/runtime/make_device.h"

namespace lockstep {
namespace {

constexpr int kMostRuntimeDevices = 1024;

// The cores of copy lanes. A copy should not take time from computation: it runs on cores where no device computes or,
// if there are none, on any core that the scheduler finds idle.
std::vector<int> cpus_for_copies(const std::vector<int>& all, const std::vector<std::vector<int>>& device_cpus) {
  std::vector<int> spare = all;
  for (const std::vector<int>& cpus : device_cpus) {
    std::erase_if(spare, [&](int cpu) { return std::ranges::find(cpus, cpu) != cpus.end(); });
  }
  return spare.empty() ? all : spare;
}

// Returns the options with cpu_devices, cuda, and cuda_logical set according to `devices`.
RuntimeOptions resolved(RuntimeOptions options) {
  const WantedDevices& wanted = options.devices;
  if (!wanted.given()) return options;
  check(options.cpu_devices == 1 && options.cuda.empty() && options.cuda_logical == 0,
        "runtime: `devices` and one of cpu_devices, cuda, and cuda_logical are given, expected `devices` alone");
  RuntimeOptions found;
  if (!wanted.list().empty()) {
    found = wanted.list() == "auto" ? find_devices().options : parse_device_list(wanted.list()).options;
  } else {
    check(wanted.count() >= 1 && wanted.count() <= kMostRuntimeDevices, "runtime: {} devices, expected 1 to {}",
          wanted.count(), kMostRuntimeDevices);
    found = find_devices(wanted.count()).options;
  }
  options.cpu_devices = found.cpu_devices;
  options.cuda = found.cuda;
  options.cuda_logical = found.cuda_logical;
  return options;
}

}  // namespace

DeviceState& state_of(Device device, std::string_view what) {
  check(!device.is_host(),
        "{}: the tensor is in host memory, expected it on a device: copy it there with to(device), or cut a batch with "
        "split_and_load()",
        what);
  // A Device is only ever made from a DeviceState; see Runtime.
  return *const_cast<DeviceState*>(static_cast<const DeviceState*>(device.info()));
}

Runtime::Runtime(RuntimeOptions options) : Runtime(options, std::make_shared<RandomState>()) {
  const RandomState& before = *process_random();
  if (options.seed) {
    random_->set_seed(*options.seed);
    RandomState::set_of_thread(nullptr);
  } else {
    random_->set_seed(before.seed(), Seeding::By::process);
    // In a later step, no key can repeat.
    if (before.step() == 0) random_->set_position(before.position());
  }
  living_ = std::make_shared<const LivingRuntime>(*this);
}

Runtime::Runtime(RuntimeOptions given, std::shared_ptr<RandomState> random) : random_(std::move(random)) {
  const RuntimeOptions options = resolved(std::move(given));
  check(options.cpu_devices >= 1 && options.cpu_devices <= kMostRuntimeDevices,
        "runtime: {} CPU devices, expected 1 to {}", options.cpu_devices, kMostRuntimeDevices);
  check(options.threads_per_shard.value_or(0) >= 0, "runtime: {} threads per shard, expected at least 1",
        options.threads_per_shard.value_or(0));
  const std::vector<int> available = available_cpus();
  engine_ = std::make_shared<Engine>(EngineOptions{.serial = options.serial,
                                                   .cores = static_cast<int>(available.size()),
                                                   .slow_wait = options.slow_wait,
                                                   .on_slow_wait = options.on_slow_wait});
  auto cpus = split_cpus(available, options.cpu_devices, options.cores_per_device);
  fixed_threads_ = options.threads_per_shard.has_value();
  threads_per_shard_ = options.threads_per_shard.value_or(1);
  if (threads_per_shard_ == 0) threads_per_shard_ = static_cast<int>(cpus.front().size());
  std::shared_ptr<Backend> backend =
      options.reference_backend ? make_reference_backend() : make_cpu_backend({.direct_conv = options.direct_conv});
  // oneDNN runs in OpenMP's threads.
  if (backend->threads_decide_bits(DType::bf16)) check_openmp_threads(threads_per_shard_);

  // An explicit limit of one device may exceed the memory that the machine appears to have.
  const std::size_t host_bytes = std::max(total_memory(), options.memory_limit);
  SharedHostMemory::Usage usage;
  if (options.memory_limit == 0 && read_cgroup_limits().memory_bytes <= total_memory()) {
    if (read_cgroup_limits().memory_used) usage = [] { return read_cgroup_limits().memory_used; };
  }
  const DeviceParts parts{engine_,
                          random_,
                          options,
                          fixed_threads_ ? std::optional(threads_per_shard_) : std::nullopt,
                          cpus_for_copies(available, cpus),
                          std::make_shared<SharedHostMemory>(host_bytes, std::move(usage))};
  for (int i = 0; i < options.cpu_devices; ++i) {
    states_.push_back(make_cpu_device(parts, i, cpus[static_cast<std::size_t>(i)], backend));
  }
  if (!options.cuda.empty() || options.cuda_logical > 0) add_gpus(parts);
  // The requested GPUs come first.
  std::ranges::stable_partition(states_, [](const auto& state) { return state->kind == DeviceKind::cuda; });
  for (const auto& state : states_) {
    state->kernels.reference = options.reference_backend;
    if (state->kind == DeviceKind::cpu) state->kernels.direct_conv = options.direct_conv;
    if (state->kind == DeviceKind::cuda) {
      state->kernels.tf32 = options.tf32;
      state->kernels.cuda_algorithms = options.cuda_algorithms;
    }
    all_devices_.push_back(Device(state.get()));
    if (state->kind == states_[0]->kind) devices_.push_back(all_devices_.back());
  }
  choose(options.devices);
}

void Runtime::choose(const WantedDevices& wanted) {
  if (wanted.count() > 0) {
    devices_.resize(static_cast<std::size_t>(wanted.count()));
  } else if (wanted.given() && wanted.list() != "auto") {
    devices_ = devices(wanted.list());
  }
}

void Runtime::add_gpus(const DeviceParts& parts) {
  const RuntimeOptions& options = parts.options;
  constexpr int kMostLogical = 64;
  check(options.cuda_logical >= 0 && options.cuda_logical <= kMostLogical,
        "runtime: {} logical devices of a GPU, expected at most {}", options.cuda_logical, kMostLogical);
  const std::vector<int> wanted = options.cuda.empty() ? std::vector{0} : options.cuda;
  const GpuList found = find_gpus();
  check(!found.gpus.empty(), "runtime: cuda:{} requested, but {}: {}", wanted[0],
        found.failed ? "CUDA fails" : "there is no GPU", found.why_none);
  std::shared_ptr<Backend> backend = make_cuda_backend({.tf32 = options.tf32, .algorithms = options.cuda_algorithms});
  auto pinned =
      std::make_shared<CachingAllocator>(engine_, "pinned host memory", total_memory(), make_pinned_memory(wanted[0]));
  std::shared_ptr<DeviceState> host_side = states_[0];
  // A domain's GPUs all read each other's memory. The host's domain is 0.
  std::vector<std::vector<int>> domains;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    auto gpu = std::ranges::find(found.gpus, wanted[i], &GpuInfo::index);
    if (const auto old = std::ranges::find(found.left_out, wanted[i], &UnusableGpu::index); old != found.left_out.end())
      fail("runtime: cuda:{} requested, but it cannot be used: {}", wanted[i], old->why);
    check(gpu != found.gpus.end(), "runtime: cuda:{} requested, but there are {} GPUs", wanted[i], found.gpus.size());
    check(std::ranges::count(wanted, wanted[i]) == 1, "runtime: cuda:{} is listed twice", wanted[i]);
    const auto connects = [&](const std::vector<int>& domain) {
      return std::ranges::all_of(domain, [&](int member) { return connect_gpus(member, wanted[i]); });
    };
    auto domain = std::ranges::find_if(domains, connects);
    if (domain == domains.end()) domain = domains.emplace(domain);
    domain->push_back(wanted[i]);
    const auto number = static_cast<int>(domain - domains.begin()) + 1;
    for (auto& state : make_gpu_devices(parts, *gpu, number, backend, pinned, host_side)) {
      states_.push_back(std::move(state));
    }
  }
}

Runtime::~Runtime() {
  living_.reset();
  try {
    engine_->wait_all();
  } catch (const Error&) {
    // As documented, failures that no wait has thrown are dropped here; synchronize() would throw them.
  }
}

Device Runtime::device(std::string_view name) const {
  for (Device device : all_devices_) {
    if (device.name() == name) return device;
  }
  fail("unknown device '{}': expected one of {}", name, str(all_devices_));
}

std::vector<Device> Runtime::devices(std::string_view list) const {
  std::vector<Device> found;
  for (Device device : all_devices_) {
    if (list == (device.kind() == DeviceKind::cpu ? "cpu" : "cuda")) found.push_back(device);
  }
  if (!found.empty()) return found;
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

int Runtime::idle_cores(int shards, DType dtype) const {
  const auto devices = static_cast<int>(devices_.size());
  int idle = 0;
  for (int i = 0; i < devices; ++i) {
    const DeviceState& state = state_of(devices_[static_cast<std::size_t>(i)], "idle_cores");
    if (state.kind != DeviceKind::cpu) continue;
    const auto cores = static_cast<int>(state.cpus.size());
    const int mine = shards * (i + 1) / devices - shards * i / devices;
    const bool fixed = !state.helpers || state.backend->threads_decide_bits(dtype);
    const int busy = fixed ? mine * threads_per_shard_ : mine > 0 ? cores : 0;
    idle += std::max(0, cores - busy);
  }
  return idle;
}

void Runtime::synchronize() { engine_->wait_all(); }

void Runtime::synchronize(Device device) {
  const DeviceState& state = state_of(device, "synchronize");
  std::vector<LaneId> lanes = state.compute_lanes;
  lanes.insert(lanes.end(), {state.copy_in_lane, state.copy_out_lane, state.urgent_lane});
  std::vector<Resource> ends;
  // Push a last task to each lane, because a lane runs its tasks in order.
  for (LaneId lane : lanes) {
    Task task{.name = "synchronize", .lane = lane};
    task.writes.push_back(ends.emplace_back(engine_->make_resource()));
    task.run = [](const TaskContext&) {};
    engine_->push(std::move(task));
  }
  for (const Resource& end : ends) engine_->wait_readable(end);
}

std::string str(const std::vector<Device>& devices) {
  std::string s = "[";
  for (std::size_t i = 0; i < devices.size(); ++i) s += (i ? ", " : "") + std::string(devices[i].name());
  return s + "]";
}

}  // namespace lockstep
