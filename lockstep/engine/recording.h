// Internal: tasks that are described once and pushed repeatedly, such as a training step.
//
//   auto recorder = std::make_shared<TaskRecorder>();
//   engine.set_push_observer(recorder);
//   ...  // push; this runs as usual
//   engine.set_push_observer(nullptr);
//   Recording step = recorder->take();
//   step.replay(engine);  // as if it were described again
//
// The memory that the tasks use must stay in place, and what their functions captured must be valid for every
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

// A task's function runs once at a time, because all its repetitions are on one lane.
struct RecordedTask {
  std::string name;
  LaneId lane;
  Resources reads, writes;
  bool updates;
  TaskFunction run;
};

class Recording {
 public:
  // Pushes all tasks.
  void replay(Engine& engine) const;
  const std::vector<std::shared_ptr<RecordedTask>>& tasks() const { return tasks_; }
  // Resources that the tasks read before writing, and resources that they write, each once.
  std::vector<Resource> reads() const;
  std::vector<Resource> writes() const;

 private:
  friend class TaskRecorder;
  // The resources are those that stand for the memory at the end, so all users of that memory wait in one queue.
  std::vector<std::shared_ptr<RecordedTask>> tasks_;
};

// Records the pushes of the thread that made it.
class TaskRecorder final : public PushObserver {
 public:
  TaskRecorder() : thread_(std::this_thread::get_id()) {}

  // While paused, pushes of this thread are not recorded. Call it from that thread.
  void pause(bool paused) { paused_ = paused; }
  // Whether the thread waited for data while it was recorded. Its later pushes may depend on that data.
  bool waited() const { return waited_; }
  // Marks a resource as made for the recording alone. A task that writes a part of it before any other write does not
  // count as a reader; otherwise a repetition would read what the previous repetition left, including its failures.
  void own(const Resource& resource) { own_.push_back(resource); }
  // Call it once, after the last push.
  Recording take();

 private:
  void pushing(Task& task) override;
  void succeeded(const Resource& old, const Resource& fresh) noexcept override;
  void waiting() noexcept override { waited_ |= recording(); }
  // The thread is compared first, so other threads never read what this one changes.
  bool recording() const { return std::this_thread::get_id() == thread_ && !paused_; }

  const std::thread::id thread_;
  bool paused_ = false;
  bool waited_ = false;
  Recording recording_;
  // Handles of both keep their addresses from being reused.
  std::vector<std::pair<Resource, Resource>> successions_;
  std::vector<Resource> own_;
};

}  // namespace lockstep
