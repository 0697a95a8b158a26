#include "lockstep/engine/recording.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace lockstep {
namespace {

using States = std::unordered_set<const ResourceState*>;

}  // namespace

void Recording::replay(Engine& engine) const {
  for (const auto& recorded : tasks_) {
    Task task{.name = recorded->name,
              .lane = recorded->lane,
              .reads = recorded->reads,
              .writes = recorded->writes,
              .updates = recorded->updates};
    task.run = [recorded](const TaskContext& context) { recorded->run(context); };
    engine.push(std::move(task));
  }
}

std::vector<Resource> Recording::reads() const {
  std::vector<Resource> all;
  States seen;
  for (const auto& task : tasks_) {
    for (const Resource& r : task->reads) {
      if (seen.insert(r.state()).second) all.push_back(r);
    }
    for (const Resource& r : task->writes) seen.insert(r.state());
  }
  return all;
}

std::vector<Resource> Recording::writes() const {
  std::vector<Resource> all;
  States seen;
  for (const auto& task : tasks_) {
    for (const Resource& r : task->writes) {
      if (seen.insert(r.state()).second) all.push_back(r);
    }
  }
  return all;
}

void TaskRecorder::pushing(Task& task) {
  if (!recording()) return;
  auto recorded = std::make_shared<RecordedTask>();
  recorded->name = task.name;
  recorded->lane = task.lane;
  recorded->reads = task.reads;
  recorded->writes = task.writes;
  recorded->updates = task.updates;
  recorded->run = std::move(task.run);
  task.run = [recorded](const TaskContext& context) { recorded->run(context); };
  recording_.tasks_.push_back(std::move(recorded));
}

// Without memory, noexcept ends the process: a recording that lacks a succession would let two uses of a block overlap.
void TaskRecorder::succeeded(const Resource& old, const Resource& fresh) noexcept {
  successions_.emplace_back(old, fresh);
}

Recording TaskRecorder::take() {
  States unwritten;
  for (const Resource& r : own_) unwritten.insert(r.state());
  for (const auto& task : recording_.tasks_) {
    Resources reads;
    for (const Resource& r : task->reads) {
      const bool writes = std::ranges::find(task->writes, r) != task->writes.end();
      if (!writes || !unwritten.contains(r.state())) reads.push_back(r);
    }
    task->reads = std::move(reads);
    for (const Resource& r : task->writes) unwritten.erase(r.state());
  }
  std::unordered_map<const ResourceState*, Resource> last;
  // From the latest backward, so that a successor's own successor is already known.
  for (auto it = successions_.rbegin(); it != successions_.rend(); ++it) {
    const auto further = last.find(it->second.state());
    last.insert_or_assign(it->first.state(), further == last.end() ? it->second : further->second);
  }
  for (const auto& task : recording_.tasks_) {
    for (auto* resources : {&task->reads, &task->writes}) {
      for (Resource& r : *resources) {
        if (const auto found = last.find(r.state()); found != last.end()) r = found->second;
      }
    }
  }
  successions_.clear();
  own_.clear();
  return std::move(recording_);
}

}  // namespace lockstep
