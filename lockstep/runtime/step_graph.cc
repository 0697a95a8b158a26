#include "lockstep/runtime/step_graph.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "lockstep/device/gpu.h"
#include "lockstep/engine/device_uses.h"

namespace lockstep {
namespace {

constexpr std::size_t kTimedInstances = 4;

DeviceState* find_device(const std::vector<DeviceState*>& devices, LaneId lane) {
  const auto at = std::ranges::find_if(devices, [&](const DeviceState* d) { return d->context(lane) != nullptr; });
  return at == devices.end() ? nullptr : *at;
}

}  // namespace

// A captured lane: its own stream, and what kernels need there.
struct StepGraph::CapturedLane {
  std::shared_ptr<Stream> stream;
  std::unique_ptr<KernelContext> context;
  int tasks = 0;
  std::map<int, std::uint64_t> awaited;  // by lane: the last awaited ticket
};

// A graph. It is launched again only after its last launch is over.
struct StepGraph::Instance {
  // The graph uses the lanes' memory, so it is destroyed first.
  std::map<int, CapturedLane> lanes;
  std::shared_ptr<StreamGraph> graph;
  // If times are taken, each task with the indices of its begin and end among the times of a launch.
  std::vector<TaskPart> parts;
  Resource used;
};

std::string StepGraph::why_not(const Recording& tasks, const std::vector<DeviceState*>& devices) {
  if (tasks.tasks().empty()) return "there are no tasks";
  for (const auto& task : tasks.tasks()) {
    const DeviceState* device = find_device(devices, task->lane);
    if (!device) return fmt::format("{} is not a task of a device", task->name);
    if (device->kind != DeviceKind::cuda) return fmt::format("{} runs on {}", task->name, device->name);
  }
  return "";
}

StepGraph::StepGraph(const Recording& tasks, std::vector<DeviceState*> devices)
    : tasks_(tasks), devices_(std::move(devices)), engine_(*devices_.front()->engine), reads_(tasks.reads()),
      writes_(tasks.writes()) {
  // Wait for the recorded run to finish, because a task's function must not run twice at a time.
  for (const Resource& r : reads_) engine_.wait_unused(r);
  for (const Resource& r : writes_) engine_.wait_unused(r);
  plain_ = capture(false);
}

StepGraph::~StepGraph() {
  if (plain_) engine_.wait_unused(plain_->used);
  for (const auto& instance : timed_) engine_.wait_unused(instance->used);
}

std::unique_ptr<StepGraph::Instance> StepGraph::capture(bool timed) const {
  auto instance = std::make_unique<Instance>();  // destroyed after the capture
  const std::unique_ptr<StreamCapture> capture = make_gpu_capture(timed);
  check(capture != nullptr, "LOCKSTEP_CUDA_SYNC is set");
  instance->used = engine_.make_resource();
  std::map<int, CapturedLane>& lanes = instance->lanes;
  std::vector<int> in_order;  // in the order in which streams were added
  for (const auto& task : tasks_.tasks()) {
    const auto [at, fresh] = lanes.try_emplace(task->lane.index);
    ++at->second.tasks;
    if (!fresh) continue;
    DeviceState& device = *find_device(devices_, task->lane);
    in_order.push_back(task->lane.index);
    at->second.stream = capture->add_stream(device.gpu);
    at->second.context = device.backend->make_capture_context(at->second.stream, device.allocator->scratch(),
                                                              *device.context(task->lane));
  }
  // Two times per task, lane by lane.
  std::map<int, std::uint64_t> next_time;
  std::uint64_t times = 0;
  for (int lane : in_order) {
    next_time[lane] = times;
    times += 2 * static_cast<std::uint64_t>(lanes.at(lane).tasks);
  }

  capture->begin();
  std::unordered_map<const ResourceState*, DeviceUses> uses;
  for (const auto& task : tasks_.tasks()) {
    const int index = task->lane.index;
    CapturedLane& lane = lanes.at(index);
    std::vector<DeviceWait> waits;
    for (const Resource& r : task->reads) uses[r.state()].add_waits(true, false, waits);
    for (const Resource& r : task->writes) uses[r.state()].add_waits(false, true, waits);
    for (const DeviceWait& wait : waits) {
      std::uint64_t& awaited = lane.awaited[wait.ticket.lane];
      if (wait.ticket.lane == index || wait.ticket.number <= awaited) continue;
      awaited = wait.ticket.number;
      lane.stream->wait(*lanes.at(wait.ticket.lane).stream, wait.ticket.number);
    }
    if (timed) lane.stream->record(true);
    task->run({.lane = task->lane, .lane_data = lane.context.get(), .stream = lane.stream.get()});
    const Ticket ticket{index, lane.stream->record(timed)};
    for (const Resource& r : task->reads) uses[r.state()].read(ticket);
    for (const Resource& r : task->writes) uses[r.state()].write(ticket);
    if (!timed) continue;
    std::uint64_t& time = next_time.at(index);
    instance->parts.push_back({.name = task->name, .lane = task->lane, .begin = time, .end = time + 1});
    time += 2;
  }
  instance->graph = capture->end();
  return instance;
}

StepGraph::Instance* StepGraph::timed_instance() {
  if (!times_ || !engine_.tracing()) return nullptr;
  if (timed_.size() == kTimedInstances) {
    Instance* const next = timed_[next_timed_++ % kTimedInstances].get();
    engine_.wait_unused(next->used);
    return next;
  }
  try {
    timed_.push_back(capture(true));
  } catch (const std::exception&) {
    // The step has begun and can run without times.
    times_ = false;
    return nullptr;
  }
  return timed_.back().get();
}

void StepGraph::repeat() {
  Instance* const timed = timed_instance();
  Task task{.name = "recorded step", .lane = tasks_.tasks().front()->lane};
  for (const Resource& r : reads_) task.reads.push_back(r);
  for (const Resource& r : writes_) task.writes.push_back(r);
  // If it is skipped, what it both reads and writes, such as weights, stays good; it writes all else before reading it.
  task.updates = true;
  task.writes.push_back(plain_->used);
  if (timed) task.writes.push_back(timed->used);
  task.run = [plain = plain_.get(), timed](const TaskContext& context) {
    // The timeline may have ended meanwhile.
    if (!timed || !context.parts) {
      plain->graph->launch(*context.stream);
      return;
    }
    const std::uint64_t first = timed->graph->launch(*context.stream);
    for (TaskPart part : timed->parts) {
      part.begin += first;
      part.end += first;
      context.parts->push_back(part);
    }
  };
  engine_.push(std::move(task));
}

}  // namespace lockstep
