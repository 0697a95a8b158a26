// Internal: a graph of the operations that a model computes, whose names are paths of modules.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"

namespace lockstep {

struct ModelNode {
  std::string name;                   // "layer1/0/conv1/conv2d"; unique
  std::string op;                     // "conv2d", "Input", "Parameter", "Constant"
  std::string module;                 // the kind of the module that called it: "Conv2d"
  std::vector<std::string> inputs{};  // names of nodes
  std::vector<Shape> outputs{};
};

// Returns the operations of `call`, which must run the model once on `inputs`, in order. Weights and constants come
// before their first use. Runs the model in evaluation mode, without a history, and leaves the random numbers as they
// were. A Function of the program is one node.
std::vector<ModelNode> trace_model(Module& model, std::span<const Tensor> inputs, const std::function<void()>& call);

}  // namespace lockstep
