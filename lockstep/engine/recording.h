// Tasks that are described once and pushed again and again: a training step.
//
//   auto recorder = std::make_shared<TaskRecorder>();
//   engine.set_push_observer(recorder);
//   ...  // push; this runs as always
//   engine.set_push_observer(nullptr);
//   Recording step = recorder->take();
//   step.replay(engine);  // as if it were described once more
//
// The memory that the tasks use has to stay where it is, and what their functions have captured has to hold for every
// repetition.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/push_observer.h"

namespace lockstep {

// A task's function is called once at a time: all its repetitions are on one lane.
struct RecordedTask {
  std::string name;
  LaneId lane;
  SmallVector<Resource, 4> reads, writes;
  InlineFunction<void(const TaskContext&), 384> run;
};

class Recording {
 public:
  // Pushes all of them.
  void replay(Engine& engine) const;
  const std::vector<std::shared_ptr<RecordedTask>>& tasks() const { return tasks_; }
  // What they read before they write it, and what they write, each once.
  std::vector<Resource> reads() const;
  std::vector<Resource> writes() const;

 private:
  friend class TaskRecorder;
  // Resources are those that stand for their memory at the end: whoever had it before waits in the same queue.
  std::vector<std::shared_ptr<RecordedTask>> tasks_;
};

// Records what the thread that made it pushes.
class TaskRecorder final : public PushObserver {
 public:
  TaskRecorder() : thread_(std::this_thread::get_id()) {}

  // What this thread pushes meanwhile is no part of the recording. To be called by it.
  void pause(bool paused) { paused_ = paused; }
  // Whether the thread has waited for data while it was recorded: what it did then may depend on it.
  bool waited() const { return waited_; }
  // A resource that was made for the recording alone: a task that finds nothing there but writes a part of it does not read
  // it. In a repetition it would read what the one before has left, its failures too.
  void own(const Resource& resource) { own_.push_back(resource); }
  // Once, when nothing is pushed any more.
  Recording take();

 private:
  void pushing(Task& task) override;
  void succeeded(const Resource& old, const Resource& fresh) noexcept override;
  void waiting() noexcept override { waited_ |= recording(); }
  // Other threads do not look at what this one changes.
  bool recording() const { return std::this_thread::get_id() == thread_ && !paused_; }

  const std::thread::id thread_;
  bool paused_ = false;
  bool waited_ = false;
  Recording recording_;
  // Handles of both, so that addresses mean nothing else.
  std::vector<std::pair<Resource, Resource>> successions_;
  std::vector<Resource> own_;
};

}  // namespace lockstep
