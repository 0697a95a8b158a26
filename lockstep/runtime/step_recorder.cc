#include "lockstep/runtime/step_recorder.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace lockstep {
namespace {

thread_local StepRecorder* current_recorder = nullptr;
std::atomic<std::uint64_t> replaced_memory{0};

}  // namespace

RecordedTasks::~RecordedTasks() {
  graph_ = nullptr;
  for (const auto& [device, pool] : pools_) device->allocator->drop_pool(pool);
}

bool RecordedTasks::valid() const {
  return std::ranges::all_of(conditions_, [](const auto& condition) { return condition(); });
}

void RecordedTasks::repeat() {
  for (const auto& preparation : preparations_) preparation();
  if (graph_) {
    graph_->repeat();
  } else {
    tasks_.replay(*engine_);
  }
  for (Storage* storage : written_) storage->count_write();
}

void RecordedTasks::make_graph() {
  why_no_graph_ = StepGraph::why_not(tasks_, devices_);
  if (!why_no_graph_.empty()) return;
  try {
    graph_ = std::make_unique<StepGraph>(tasks_, devices_);
  } catch (const std::exception& error) {
    // Without a graph, the tasks are pushed one by one.
    why_no_graph_ = error.what();
  }
}

StepRecorder::StepRecorder(std::shared_ptr<Engine> engine) : engine_(std::move(engine)), replaced_(replaced_memory) {
  check(!current_recorder, "recorded step: it is inside another recorded step");
  check(engine_->try_set_push_observer(tasks_),
        "recorded step: another thread is recording, or a push observer is set");
  current_recorder = this;
}

StepRecorder::~StepRecorder() {
  if (current_recorder != this) return;
  current_recorder = nullptr;
  engine_->set_push_observer(nullptr);
}

StepRecorder* StepRecorder::current() { return current_recorder; }

std::unique_ptr<RecordedTasks> StepRecorder::finish() {
  current_recorder = nullptr;
  engine_->set_push_observer(nullptr);
  if (!pending_.empty()) refuse("it leaves gradients that no optimizer's step() has used");
  if (tasks_->waited()) refuse("it waits for data that it has computed");
  valid_while([before = replaced_] { return replaced_memory == before; });
  recorded_->engine_ = engine_;
  recorded_->tasks_ = tasks_->take();
  if (recorded_->why_not_.empty()) recorded_->make_graph();
  return std::move(recorded_);
}

void StepRecorder::memory_replaced() {
  ++replaced_memory;
  if (current_recorder) current_recorder->refuse("it gives a buffer other memory");
}

void StepRecorder::refuse(std::string why) {
  if (recorded_->why_not_.empty()) recorded_->why_not_ = std::move(why);
}

Block StepRecorder::allocate(DeviceState& device, std::size_t bytes, LaneId lane) {
  const auto [at, fresh] = recorded_->pools_.try_emplace(device.shared_from_this(), 0);
  if (fresh) at->second = device.allocator->make_pool();
  Block block = device.allocator->allocate(bytes, lane, at->second);
  tasks_->own(block.resource);
  own_memory_.insert(block.data);
  return block;
}

void StepRecorder::begin_gradient(const void* tree, bool empty) {
  if (pending_.insert(tree).second && !empty) refuse("it adds to earlier gradients");
}

void StepRecorder::use(const Array& t) {
  if (!t.defined()) return;
  if (!t.device().is_host()) {
    DeviceState* const device = &state_of(t.device(), "recorded step");
    if (std::ranges::find(recorded_->devices_, device) == recorded_->devices_.end())
      recorded_->devices_.push_back(device);
  }
  if (own_memory_.contains(t.storage()->data)) return;
  auto& held = recorded_->held_;
  if (std::ranges::find(held, t.storage()) == held.end()) held.push_back(t.storage());
}

void StepRecorder::writes(const Array& t) {
  if (!t.defined() || std::ranges::find(recorded_->held_, t.storage()) == recorded_->held_.end()) return;
  auto& written = recorded_->written_;
  if (std::ranges::find(written, t.storage().get()) == written.end()) written.push_back(t.storage().get());
}

RecordingPause::RecordingPause() : paused_(std::exchange(current_recorder, nullptr)) {
  if (paused_) paused_->tasks_->pause(true);
}

RecordingPause::~RecordingPause() {
  if (paused_) paused_->tasks_->pause(false);
  current_recorder = paused_;
}

}  // namespace lockstep
