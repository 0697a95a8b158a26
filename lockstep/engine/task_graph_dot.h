// A graph of tasks as a picture: the language of Graphviz, one column a device, time from top to bottom.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/task_graph.h"

namespace lockstep {

// What a node is, for its colour and the legend.
struct TaskKind {
  std::string name;   // "copy"
  std::string color;  // as Graphviz has them: "#f6c85f", "lightblue"
};

struct TaskGraphPicture {
  std::string title = {};
  // By lane: the device that it belongs to, and its name.
  struct Lane {
    std::string device;
    std::string name;
  };
  std::vector<Lane> lanes = {};
  // By TaskGraph::Node::kind.
  std::vector<TaskKind> kinds = {};
};

// For `dot`, Graphviz's program. Every string may hold anything.
std::string to_dot(const TaskGraph& graph, const TaskGraphPicture& picture);

}  // namespace lockstep
