#include "lockstep/runtime/make_device.h"

#include <algorithm>

#include "lockstep/device/topology.h"

namespace lockstep {

std::shared_ptr<DeviceState> make_cpu_device(const DeviceParts& parts, int index, std::vector<int> cpus,
                                             std::shared_ptr<Backend> backend) {
  auto state = std::make_shared<DeviceState>();
  state->kind = DeviceKind::cpu;
  state->index = index;
  state->name = fmt::format("cpu:{}", index);
  state->cpus = std::move(cpus);
  state->model = cpu_model_name();
  state->memory_bytes = total_memory();
  state->engine = parts.engine;
  state->backend = std::move(backend);
  state->runtime_random = parts.random;
  state->memory_domain = 0;
  state->allocator = std::make_unique<CachingAllocator>(
      parts.engine, state->name, parts.options.memory_limit ? parts.options.memory_limit : state->memory_bytes,
      parts.host_memory);
  parts.host_memory->add_user(state);

  BusyLanes busy_lanes;
  auto add_lane = [&](std::string lane_name, std::vector<int> lane_cpus, int threads) {
    state->contexts.push_back(state->backend->make_context(nullptr, threads, nullptr));
    return parts.engine->add_lane({.name = std::move(lane_name),
                                   .device = state->name,
                                   // Under a quota, every group of processes would bind its threads to the first cores.
                                   .cpus = limited_by_quota() ? std::vector<int>() : std::move(lane_cpus),
                                   .lane_data = state->contexts.back().get(),
                                   .busy_lanes = busy_lanes,
                                   .device_bytes = state->allocator->used_bytes()});
  };
  const int threads = parts.threads_per_shard.value_or(1);
  auto cores = static_cast<int>(state->cpus.size());
  // The serial engine computes on the caller's thread, which has no lane's cores.
  const bool shares = !parts.threads_per_shard && cores > 1 && !parts.options.serial;
  // Lanes that share helpers move among the device's cores: a worker bound to one core would wait there for a helper or
  // for the describing thread while another core is idle.
  if (shares) busy_lanes = std::make_shared<std::atomic<int>>(0);
  int lanes = std::max(1, cores / threads);
  for (int lane = 0; lane < lanes; ++lane) {
    auto first = state->cpus.begin() + lane * threads;
    auto last = first + std::min<std::ptrdiff_t>(threads, state->cpus.end() - first);
    state->compute_lanes.push_back(
        add_lane(fmt::format("compute {}", lane), shares ? state->cpus : std::vector<int>(first, last), threads));
  }
  if (shares) {
    state->helpers =
        std::make_unique<HelperPool>(cores - 1, busy_lanes, limited_by_quota() ? std::vector<int>() : state->cpus);
    for (const auto& context : state->contexts) context->share(*state->helpers);
    busy_lanes = nullptr;
  }
  state->copy_in_lane = add_lane("copy in", parts.copy_cpus, 1);
  state->copy_out_lane = add_lane("copy out", parts.copy_cpus, 1);
  state->urgent_lane = add_lane("urgent", state->cpus, 1);
  return state;
}

std::vector<std::shared_ptr<DeviceState>> make_gpu_devices(const DeviceParts& parts, const GpuInfo& gpu,
                                                           int memory_domain, std::shared_ptr<Backend> backend,
                                                           std::shared_ptr<CachingAllocator> pinned,
                                                           std::shared_ptr<DeviceState> host_side) {
  const int logical = parts.options.cuda_logical;
  std::vector<std::shared_ptr<DeviceState>> states;
  for (int i = 0; i < std::max(1, logical); ++i) {
    auto state = std::make_shared<DeviceState>();
    state->kind = DeviceKind::cuda;
    state->index = static_cast<int>(gpu.index * std::max(1, logical) + i);
    state->name = logical > 0 ? fmt::format("cuda:{}/{}", gpu.index, i) : fmt::format("cuda:{}", gpu.index);
    state->cpus = gpu.cpus;
    state->model = gpu.model;
    state->gpu = gpu.index;
    state->gpu_uuid = gpu.uuid;
    state->memory_bytes = gpu.memory_bytes / static_cast<std::size_t>(std::max(1, logical));
    state->engine = parts.engine;
    state->backend = backend;
    state->runtime_random = parts.random;
    state->memory_domain = memory_domain;
    state->allocator = std::make_unique<CachingAllocator>(
        parts.engine, state->name,
        parts.options.cuda_memory_limit ? parts.options.cuda_memory_limit : state->memory_bytes,
        make_gpu_memory(gpu.index));
    state->pinned = pinned;
    state->host_side = host_side;

    // Workers only queue work, so they may run on any core near the GPU.
    auto add_lane = [&](std::string lane_name, bool urgent) {
      auto stream = make_gpu_stream(gpu.index, urgent);
      state->contexts.push_back(backend->make_context(stream, 1, state->allocator->scratch()));
      return parts.engine->add_lane({.name = std::move(lane_name),
                                     .device = state->name,
                                     .cpus = limited_by_quota() ? std::vector<int>() : gpu.cpus,
                                     .stream = std::move(stream),
                                     .lane_data = state->contexts.back().get(),
                                     .device_bytes = state->allocator->used_bytes()});
    };
    // One lane is enough: each kernel can use the whole GPU, and launches run ahead of it.
    state->compute_lanes = {add_lane("compute 0", false)};
    state->copy_in_lane = add_lane("copy in", false);
    state->copy_out_lane = add_lane("copy out", false);
    state->urgent_lane = add_lane("urgent", true);
    states.push_back(std::move(state));
  }
  return states;
}

}  // namespace lockstep
