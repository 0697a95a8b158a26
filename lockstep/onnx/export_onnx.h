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
  // The axis of each input that has the samples, -1 if none has. Empty: axis 0 of each input with axes.
  std::vector<int> batch_axes = {};
  // Empty: "input" and "output", or "input0", "input1", ... if there are several.
  std::vector<std::string> input_names = {};
  std::vector<std::string> output_names = {};
  // Key and value of each entry of the file's metadata, such as {"classes", "cat\ndog"}.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

using OnnxForward = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

// Writes what `forward` computes from whole tensors like `examples` by means of `model`, whose weights keep their
// names. The file appears complete or not at all.
//
// Calls `forward` twice, for two sizes of the batch and other elements, with examples that are made of the rows of
// `examples`, and compares what it computes. What differs must follow from the batch size; with dynamic_batch = false,
// both passes have the examples' shapes, and nothing may differ. An operation that ONNX does not have, a tensor that is
// made from the inputs by other means than the library's operations, a read of elements (item(), to_vector(), masks as
// indices), or a write in place is an error that names the operation and the path of its module. The program's own
// decisions (`if` and `for`) are those of the two passes: one by the size of the batch that agrees for both sizes stays
// unnoticed, as does a batch of one that the model treats in another way.
void export_onnx(const std::filesystem::path& path, Module& model, const std::vector<Tensor>& examples,
                 const OnnxForward& forward, const OnnxOptions& options = {});
// model(example).
void export_onnx(const std::filesystem::path& path, Module& model, const Tensor& example,
                 const OnnxOptions& options = {});

}  // namespace lockstep
