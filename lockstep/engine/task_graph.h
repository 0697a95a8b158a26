// The tasks of a part of a program and who waits for whom: recorded while they are pushed, simplified for a
// picture.
//
//   auto recorder = std::make_shared<TaskGraphRecorder>();
//   engine.set_push_observer(recorder);
//   ...  // push
//   engine.set_push_observer(nullptr);
//   TaskGraph graph = recorder->graph();
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/engine/push_observer.h"

namespace lockstep {

struct TaskGraph {
  // A task, or several that are seen as one.
  struct Node {
    // Of the first task.
    int lane = 0;
    // Their names and how many have each, in order of pushing.
    std::vector<std::pair<std::string, int>> tasks;
    // For whoever draws it; the first task's.
    int kind = 0;
  };
  struct Edge {
    int from = 0;  // nodes
    int to = 0;
    // `to` reads what `from` wrote; otherwise it only comes after it, because it overwrites data or uses
    // memory anew.
    bool data = true;
    auto operator<=>(const Edge&) const = default;
  };
  // From the first to the last: edges lead forwards.
  std::vector<Node> nodes;
  // Sorted; at most one from one node to another.
  std::vector<Edge> edges;
};

// What is pushed while it observes.
class TaskGraphRecorder final : public PushObserver {
 public:
  TaskGraph graph() const;

 private:
  // Who used a resource since it was last written; before that, whoever used its memory before.
  struct Users {
    Resource held;  // so that its address means nothing else
    int writer = -1;
    std::vector<int> readers;
    std::vector<int> former;
  };

  void pushed(const Task& task) noexcept override;
  void succeeded(const Resource& old, const Resource& fresh) noexcept override;
  Users& users_of(const Resource& resource);
  void connect(int from, int to, bool data);

  mutable std::mutex mutex_;
  TaskGraph graph_;
  std::unordered_map<const ResourceState*, Users> users_;
};

// Without the edges that others imply: data edges where there is a longer way along data edges, the others
// where there is one along any edges and lanes.
TaskGraph without_implied_edges(const TaskGraph& graph);

// Puts nodes of the same key together, in order, wherever that makes no circle.
TaskGraph merge_nodes(const TaskGraph& graph, const std::function<std::string(const TaskGraph::Node&)>& key);

}  // namespace lockstep
