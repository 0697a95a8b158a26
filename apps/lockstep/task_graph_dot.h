// Draws a graph of tasks in Graphviz's language: one column per device, time from top to bottom.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/task_graph.h"

namespace lockstep::app {

// The kind of a node, for its color and the legend.
struct NodeKind {
  std::string name;   // "copy"
  std::string color;  // as in Graphviz: "#f6c85f", "lightblue"
};

struct TaskGraphPicture {
  std::string title = {};
  // For each lane: its device and its name.
  struct Lane {
    std::string device;
    std::string name;
  };
  std::vector<Lane> lanes = {};
  // Indexed by TaskGraph::Node::kind.
  std::vector<NodeKind> kinds = {};
};

// Returns input for Graphviz's `dot`. Strings may contain any characters.
std::string to_dot(const TaskGraph& graph, const TaskGraphPicture& picture);

}  // namespace lockstep::app
