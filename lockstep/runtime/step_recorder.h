// Internal: records the tasks that a thread describes, to repeat them without describing them again; see
// parallel/recorded_step.h. Code that does more in a step than push tasks finds the recorder here.
#pragma once

#include <cstdint>
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
#include "lockstep/tensor/storage.h"

namespace lockstep {

// The data that a repetition needs and keeps alive.
class RecordedTasks {
 public:
  RecordedTasks() = default;
  ~RecordedTasks();
  RecordedTasks(const RecordedTasks&) = delete;
  RecordedTasks& operator=(const RecordedTasks&) = delete;

  // Whether a repetition would do what the step does now.
  bool valid() const;
  // Repeats the step: first the host's preparations, then the tasks.
  void repeat();
  // Empty, or why the step cannot be repeated: "it waits for data that it has computed".
  const std::string& why_not() const { return why_not_; }
  // Empty if the tasks became a GPU graph, otherwise why they did not: "conv2d runs on cpu:0".
  const std::string& why_no_graph() const { return why_no_graph_; }

 private:
  friend class StepRecorder;
  void make_graph();

  std::shared_ptr<Engine> engine_;
  Recording tasks_;
  std::string why_not_, why_no_graph_;
  std::vector<std::function<void()>> preparations_;
  std::vector<std::function<bool()>> conditions_;
  // Tensors from before the recording that the tasks use.
  std::vector<std::shared_ptr<Storage>> held_;
  // The tensors in held_ that the tasks write: parameters and optimizer state.
  std::vector<Storage*> written_;
  // Memory pools of all other tensors, by device.
  std::map<std::shared_ptr<DeviceState>, int> pools_;
  // All devices that the tasks use.
  std::vector<DeviceState*> devices_;
  std::unique_ptr<StepGraph> graph_;  // destroyed first
};

// Until finish(), everything this thread pushes is recorded, and runs as usual.
class StepRecorder {
 public:
  explicit StepRecorder(std::shared_ptr<Engine> engine);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // This thread's recorder; null if nothing is being recorded.
  static StepRecorder* current();

  std::unique_ptr<RecordedTasks> finish();
  // Reports that a part of a model, such as a buffer, gets other memory. All recordings, of any thread, become invalid,
  // because they may use the old memory. Refuses a recording in progress: repetitions would begin with the old memory.
  static void memory_replaced();

  // `prepare` runs before each repetition, on the thread that requests it. It writes values that change each time to
  // memory that the recorded tasks read. Everything it uses must outlive the recording.
  void before_each(std::function<void()> prepare) { recorded_->preparations_.push_back(std::move(prepare)); }
  // The recording is valid only while `condition` returns true: values that the host gave to the tasks may change.
  // Everything it uses must outlive the recording.
  void valid_while(std::function<bool()> condition) { recorded_->conditions_.push_back(std::move(condition)); }
  // Reports that the step does something that cannot be repeated. The first reason is kept.
  void refuse(std::string why);

  // Allocates memory for the step's results.
  Block allocate(DeviceState& device, std::size_t bytes, LaneId lane);
  // A gradient enters a parameter's tree. It must be consumed within the step: a remaining gradient would be for the
  // host, which does nothing in repetitions.
  void begin_gradient(const void* tree, bool empty);
  void end_gradient(const void* tree) { pending_.erase(tree); }
  // A task of the step reads or writes the array.
  void use(const Array& t);
  void writes(const Array& t);

 private:
  friend class RecordingPause;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<TaskRecorder> tasks_ = std::make_shared<TaskRecorder>();
  std::unique_ptr<RecordedTasks> recorded_ = std::make_unique<RecordedTasks>();
  std::uint64_t replaced_;         // number of calls of memory_replaced() before the recording
  std::set<const void*> pending_;  // trees of gradients
  // The blocks of the recording's pools. Nothing else gets their memory while the pools exist.
  std::set<const void*> own_memory_;
};

// In this scope, nothing is recorded.
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
