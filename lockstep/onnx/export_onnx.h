// A model as an ONNX file (opset 17), which ONNX Runtime, browsers, and many devices run.
//
//   export_onnx("model.onnx", net, rand({1, 3, 224, 224}));
//   export_onnx("model.onnx", net, {image, meta}, [&](std::span<const Tensor> in) {
//     return std::vector{softmax(net(in[0], in[1]))};  // any function of the inputs that calls the model
//   });
//
// The file has what one forward pass in evaluation mode computes for inputs of the examples' shapes, for a batch of any
// size. Weights have the names of the model's state_dict. docs/onnx.md lists the operators of each layer.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct OnnxOptions {
  // False: the file takes batches of the examples' size only.
  bool dynamic_batch = true;
  // Batch axis of each input, -1 if it has none. Empty: axis 0 of each input with axes.
  std::vector<int> batch_axes = {};
  // Names of inputs and outputs. Empty: "input" and "output", or "input0", "input1", ... if there are several.
  std::vector<std::string> input_names = {};
  std::vector<std::string> output_names = {};
  // Key and value of each entry of the file's metadata, such as {"classes", "cat\ndog"}.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

using OnnxForward = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

// Writes what `forward` computes with `model` from whole tensors like `examples`. Weights keep their names. The file
// appears complete or not at all.
//
// Calls `forward` twice, and once before if a shape of the model is not known yet. The inputs are made of the rows of
// `examples`, with two batch sizes and different elements. What differs between the two passes must follow from the
// batch size; with dynamic_batch = false, both passes have the examples' shapes, and no extent may differ. An operation
// that ONNX does not have, a tensor that is made from the inputs by other means than the library's operations, a read
// of elements (item(), to_vector(), masks as indices), or a write in place is an error that names the operation and the
// path of its module. The file has the branches (`if` and `for`) of the two passes: a decision by the batch size that
// is the same for both sizes goes unnoticed, and so does a special case for a batch of one.
void export_onnx(const std::filesystem::path& path, Module& model, const std::vector<Tensor>& examples,
                 const OnnxForward& forward, const OnnxOptions& options = {});
// The same for the function model(example).
void export_onnx(const std::filesystem::path& path, Module& model, const Tensor& example,
                 const OnnxOptions& options = {});

}  // namespace lockstep
