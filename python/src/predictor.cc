// Trained models in use: Predictor, and ONNX files.
#include <pybind11/stl/filesystem.h>

#include <string>
#include <utility>

#include "callbacks.h"
#include "module_class.h"
#include "training.h"

namespace lockstep::python {
namespace {

using Path = std::filesystem::path;

// Deletes an object without the interpreter lock, because the calls that its destructor waits for may need the lock.
template <typename T>
struct EndsWithoutLock {
  void operator()(T* object) const {
    const WithoutLock ending;
    delete object;
  }
};
using PredictorHolder = std::unique_ptr<Predictor<Module>, EndsWithoutLock<Predictor<Module>>>;

}  // namespace

void add_predictor(py::module_& m) {
  py::class_<Predictor<Module>, PredictorHolder> predictor(
      m, "Predictor", py::dynamic_attr(),
      "A model for inference: made once, then called from any number of threads. While it exists, the model is not "
      "trained.");
  def_keeping(
      predictor,
      [](const py::object& model, const std::optional<Path>& weights, std::int64_t max_batch, double wait) {
        const std::shared_ptr<Module> held = held_module(model);
        const PredictorOptions options{
            .max_batch = max_batch,
            .wait = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(wait))};
        const WithoutLock loading;
        return weights ? new Predictor<Module>(held, *weights, options) : new Predictor<Module>(held, options);
      },
      "model"_a, "weights"_a = py::none(), "max_batch"_a = 1, "wait"_a = 0.001,
      "weights: a file, a checkpoint, or a folder of checkpoints. max_batch above 1 joins calls at the same "
      "time whose inputs are in host memory; a call waits at most `wait` seconds for others.");
  predictor.def(
      "__call__", [](const Predictor<Module>& p, const Tensor& x) { return p(x); }, "input"_a, released(),
      "The model's result for a batch. Of an input in host memory, it is there, too.");
  predictor.def(
      "load", [](const Predictor<Module>& p, const Path& weights) { p.load(weights); }, "weights"_a, released(),
      "Replaces the weights while other threads predict.");

  m.def(
      "_export_onnx",
      [](const Path& path, const py::object& model, const std::vector<Tensor>& examples, const py::object& forward,
         bool dynamic_batch, std::vector<int> batch_axes, std::vector<std::string> input_names,
         std::vector<std::string> output_names, std::vector<std::pair<std::string, std::string>> metadata) {
        const std::shared_ptr<Module> held = held_module(model);
        const OnnxOptions options{.dynamic_batch = dynamic_batch,
                                  .batch_axes = std::move(batch_axes),
                                  .input_names = std::move(input_names),
                                  .output_names = std::move(output_names),
                                  .metadata = std::move(metadata)};
        const auto call = function_of<std::vector<Tensor>(const std::vector<Tensor>&)>("forward", forward);
        const WithoutLock tracing;
        export_onnx(
            path, *held, examples,
            [&](std::span<const Tensor> inputs) { return call(std::vector<Tensor>(inputs.begin(), inputs.end())); },
            options);
      },
      "path"_a, "model"_a, "examples"_a, "forward"_a, "dynamic_batch"_a, "batch_axes"_a, "input_names"_a,
      "output_names"_a, "metadata"_a);
}

}  // namespace lockstep::python
