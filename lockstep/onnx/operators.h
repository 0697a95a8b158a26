// Internal: Lockstep's operations as ONNX's operators: docs/onnx.md has the table.
#pragma once

#include <functional>
#include <string>

#include "lockstep/onnx/onnx_file.h"
#include "lockstep/onnx/traced_graph.h"

namespace lockstep {

struct GraphNames {
  std::vector<std::string> inputs, outputs;
  std::vector<int> batch_axes;  // of each input; -1: it has none
};

// Writes inputs, weights, nodes, and outputs. `weight` returns the elements of a value that is a weight. Throws an
// error that names the operation and its module if ONNX has no operator for it.
void write_graph(OnnxFile& file, const TracedGraph& graph, const GraphNames& names,
                 const std::function<std::string(int value)>& weight);

}  // namespace lockstep
