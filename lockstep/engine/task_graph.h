// Internal: the tasks of a part of a program and their dependencies, recorded while they are pushed and simplified for
// a picture.
//
//   auto recorder = std::make_shared<TaskGraphRecorder>();
//   engine.set_push_observer(recorder);
//   ...  // push
//   engine.set_push_observer(nullptr);
//   TaskGraph graph = recorder->graph();
#pragma once

#include <compare>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/engine/push_observer.h"

namespace lockstep {

struct TaskGraph {
  // A task, or several shown as one.
  struct Node {
    // The first task's lane.
    int lane = 0;
    // The tasks' names and the number of tasks with each, in order of pushing.
    std::vector<std::pair<std::string, int>> tasks;
    // The first task's kind, for the drawing code.
    int kind = 0;
    // The named data that the tasks use, such as weights.
    std::vector<std::string> subjects = {};
  };
  struct Edge {
    int from = 0;  // nodes
    int to = 0;
    // True: `to` reads what `from` wrote. False: `to` only comes after it, because it overwrites data or reuses memory.
    bool data = true;
    auto operator<=>(const Edge&) const = default;
  };
  // In order: edges lead from earlier to later nodes.
  std::vector<Node> nodes;
  // Sorted; at most one edge between two nodes.
  std::vector<Edge> edges;
};

// Records the tasks that are pushed while it observes.
class TaskGraphRecorder final : public PushObserver {
 public:
  TaskGraph graph() const;
  // Tasks that use this resource get the subject from now on.
  void name(const Resource& resource, std::string subject);

 private:
  // The users of a resource since its last write; before the first write, the users of its predecessor.
  struct Users {
    Resource held;  // keeps the address from being reused
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
  std::unordered_map<const ResourceState*, std::pair<Resource, std::string>> names_;
};

// Removes edges that others imply: a data edge if a longer path of data edges exists, any other edge if a longer path
// of edges and lane order exists.
TaskGraph without_implied_edges(const TaskGraph& graph);

// Merges nodes of the same key, in order, unless that makes a cycle.
TaskGraph merge_nodes(const TaskGraph& graph, const std::function<std::string(const TaskGraph::Node&)>& key);

}  // namespace lockstep
