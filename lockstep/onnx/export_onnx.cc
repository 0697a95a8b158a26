#include "lockstep/onnx/export_onnx.h"

#include <algorithm>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/base/file.h"
#include "lockstep/onnx/operators.h"

namespace lockstep {
namespace {

// Batch sizes of the two passes: not 1, which programs treat in other ways, and not 2, which many extents equal.
constexpr std::int64_t kFirstBatch = 3, kSecondBatch = 5;

// Returns `count` samples that repeat those of the example, or the example itself if axis is -1. `changed`: with other
// elements that are still valid: floating ones are multiplied by 0.75, then all are rolled by one place.
Tensor batch_of(const Tensor& example, int axis, std::int64_t count, bool changed) {
  Tensor x = example;
  if (axis >= 0) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(i % example.size(axis));
    x = index_select(example, axis, Tensor::from(rows, {count}));
  }
  if (!changed) return x;
  if (is_floating(x.dtype())) x = x * 0.75;
  return x.numel() > 1 ? roll(x, 1) : x;
}

void name_all(std::vector<std::string>& names, std::size_t count, std::string_view what) {
  if (names.empty()) {
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(count == 1 ? std::string(what) : fmt::format("{}{}", what, i));
    }
  }
  check(names.size() == count, "export_onnx: {} {} names for {}, expected one for each", names.size(), what, count);
}

}  // namespace

void export_onnx(const std::filesystem::path& path, Module& model, const std::vector<Tensor>& examples,
                 const OnnxForward& forward, const OnnxOptions& options) {
  check(!examples.empty(), "export_onnx: no examples, expected one for each input");
  GraphNames names{options.input_names, options.output_names, options.batch_axes};
  name_all(names.inputs, examples.size(), "input");
  if (names.batch_axes.empty()) {
    for (const Tensor& x : examples) names.batch_axes.push_back(x.dim() > 0 ? 0 : -1);
  }
  check(names.batch_axes.size() == examples.size(), "export_onnx: {} batch axes for {} inputs, expected one for each",
        names.batch_axes.size(), examples.size());
  std::int64_t samples = -1;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Tensor& x = examples[i];
    const int axis = names.batch_axes[i];
    check(x.defined() && x.device().is_host(), "export_onnx: example {} is {}, expected a tensor in host memory", i, x);
    check(axis < x.dim(), "export_onnx: batch axis {} of example {}, {}, expected one of its axes, or -1", axis, i, x);
    if (axis < 0) continue;
    if (!options.dynamic_batch) continue;
    check(x.size(axis) > 0 && (samples < 0 || samples == x.size(axis)),
          "export_onnx: example {}, {}, has {} samples on axis {}, expected {}: name the batch axes, -1 for an input "
          "without",
          i, x, x.size(axis), axis, samples < 0 ? "at least one" : fmt::format("{}", samples));
    samples = x.size(axis);
  }
  check(!options.dynamic_batch || samples > 0,
        "export_onnx: no example has a batch axis, expected {{.dynamic_batch = false}}");

  const NoGradGuard no_grad;
  const EvalGuard evaluation(model);
  const auto inputs_of = [&](std::int64_t count, bool changed) {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const Tensor x = batch_of(examples[i], options.dynamic_batch ? names.batch_axes[i] : -1, count, changed);
      all.push_back(x.detach());  // a handle of its own: one tensor may be the example of several inputs
    }
    return all;
  };
  const std::vector<Tensor> first_inputs = inputs_of(kFirstBatch, false), second_inputs = inputs_of(kSecondBatch, true);
  // A pass determines the shapes that the model does not know yet.
  const auto known = [](const auto& p) { return p.second.initialized() && p.second.shape_known(); };
  if (!std::ranges::all_of(model.named_parameters(), known) || !std::ranges::all_of(model.named_buffers(), known)) {
    forward(first_inputs);
  }
  const auto pass = [&](PassRecord& record, const std::vector<Tensor>& inputs) {
    std::vector<int> outputs;
    for (const Tensor& y : forward(inputs)) {
      check(y.defined(), "export_onnx: an output is undefined");
      outputs.push_back(record.number_of(y, "the result"));
    }
    return outputs;
  };
  PassRecord first(model, first_inputs);
  const std::vector<int> first_outputs = pass(first, first_inputs);
  PassRecord second(model, second_inputs);
  const std::vector<int> second_outputs = pass(second, second_inputs);
  const std::int64_t second_batch = options.dynamic_batch ? kSecondBatch : kFirstBatch;
  const TracedGraph graph =
      graph_of_passes({first, first_outputs, kFirstBatch}, {second, second_outputs, second_batch});
  name_all(names.outputs, graph.outputs.size(), "output");
  OnnxFile file;
  write_graph(file, graph, names, [&](int value) { return bytes_of(first.tensor(value)); });
  for (const auto& [key, value] : options.metadata) file.metadata(key, value);
  write_file_atomically(path, file.bytes(model.kind()));
}

void export_onnx(const std::filesystem::path& path, Module& model, const Tensor& example, const OnnxOptions& options) {
  export_onnx(
      path, model, {example}, [&](std::span<const Tensor> in) { return std::vector{model(in[0])}; }, options);
}

}  // namespace lockstep
