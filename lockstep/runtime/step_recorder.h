// Records what a thread describes, so that it can be repeated without being described: see parallel/recorded_step.h. Whoever
// takes part in a step and does more than push tasks finds the recorder here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/engine/recording.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/step_graph.h"
#include "lockstep/tensor/array.h"

namespace lockstep {

// What a repetition needs, and keeps alive.
class RecordedTasks {
 public:
  RecordedTasks() = default;
  ~RecordedTasks();
  RecordedTasks(const RecordedTasks&) = delete;
  RecordedTasks& operator=(const RecordedTasks&) = delete;

  // Once more: what the host has to do first, then the tasks.
  void repeat();
  // Empty, or why the step cannot be repeated: "it waits for data that it has computed".
  const std::string& why_not() const { return why_not_; }
  // Empty where the tasks have become a graph of a GPU's, or why they have not: "conv2d runs on cpu:0".
  const std::string& why_no_graph() const { return why_no_graph_; }

 private:
  friend class StepRecorder;
  void make_graph();

  std::shared_ptr<Engine> engine_;
  Recording tasks_;
  std::string why_not_, why_no_graph_;
  std::vector<std::function<void()>> preparations_;
  // Tensors from before the recording, which the tasks use.
  std::vector<std::shared_ptr<Storage>> held_;
  // Those of them that the tasks write: parameters, states of optimizers.
  std::vector<Storage*> written_;
  // The memory of all others, by device.
  std::map<std::shared_ptr<DeviceState>, int> pools_;
  // Of all that they use.
  std::vector<DeviceState*> devices_;
  std::unique_ptr<StepGraph> graph_;  // goes first
};

// From its beginning to finish() what this thread pushes is recorded, and runs as always.
class StepRecorder {
 public:
  explicit StepRecorder(std::shared_ptr<Engine> engine);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // The thread's; null where nothing is recorded.
  static StepRecorder* current();

  std::unique_ptr<RecordedTasks> finish();

  // `prepare` runs before each repetition, on the thread that asks for it: what is different each time goes to memory that
  // the recorded tasks read. What it needs has to outlive the recording.
  void before_each(std::function<void()> prepare) { recorded_->preparations_.push_back(std::move(prepare)); }
  // The step does what cannot be repeated. The first reason stays.
  void refuse(std::string why);

  // Memory for what the step computes.
  Block allocate(DeviceState& device, std::size_t bytes, LaneId lane);
  // A gradient comes into a parameter's tree, which was empty or not, and is used up in the end: what is left would be there
  // for the host, which does nothing in repetitions.
  void begin_gradient(const void* tree, bool empty);
  void end_gradient(const void* tree) { pending_.erase(tree); }
  // A task of the step uses it, and writes it.
  void use(const Array& t);
  void writes(const Array& t);

 private:
  friend class RecordingPause;
  int pool_of(Device device) const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<TaskRecorder> tasks_ = std::make_shared<TaskRecorder>();
  std::unique_ptr<RecordedTasks> recorded_ = std::make_unique<RecordedTasks>();
  std::set<const void*> pending_;  // trees of gradients
};

// Within a scope what is described is no part of the recording, if there is one.
class RecordingPause {
 public:
  RecordingPause();
  ~RecordingPause();
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;

 private:
  StepRecorder* paused_;
};

}  // namespace lockstep
