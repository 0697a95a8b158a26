// What a model consists of, layer by layer.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// A table of a model's layers, with their output shapes and numbers of parameters.
//
//   fmt::print("{}", summary(net, {32, 1, 28, 28}));
//
//   Layer  Kind        Output shape     Parameters
//   -----------------------------------------------------
//          Sequential  [32, 10]                  0
//   0      Conv2d      [32, 6, 28, 28]         156  trainable
//   1      ReLU        [32, 6, 28, 28]           0
//   ...
//   -----------------------------------------------------
//   61,706 parameters, 61,706 trainable, 0 frozen
//   246,824 bytes of parameters, 0 of buffers
//
// Each row counts a layer's own parameters, without those of the layers in it. Parameters that layers share count in
// the first one. A layer that is called several times shows its last output. Your own layers show an output only if the
// model calls them with operator().
//
// summary() calls the model once, on zeros of this shape on its first device, in evaluation mode and without a history.
// This sets unknown shapes, as a first batch does. It changes no modes, statistics, gradients, or later random numbers.
std::string summary(Module& module, const Shape& input, DType dtype = DType::f32);

// For models that are called in another way: `call` must run the model once.
std::string summary(Module& module, const std::function<void()>& call);

// A row of the table, for programs that show it in their own way.
struct LayerSummary {
  std::string name, kind;         // "layer1.0.conv1", "Conv2d"; the model itself has an empty name
  std::optional<Shape> output{};  // of its last call; none if the model does not call it with operator()
  // The number of the layer's own parameters; none if a shape is not known.
  std::optional<std::int64_t> parameters{};
  std::string state{};  // "trainable", "frozen", "frozen in part", or empty
};
// In the order of named_modules(). `call` must run the model once, as for summary().
std::vector<LayerSummary> summarize_layers(Module& module, const std::function<void()>& call);

// Moves a tensor in host memory to the model's first device. Returns anything else unchanged.
Tensor input_for(const Module& module, const Tensor& x);
template <typename T>
requires(!std::convertible_to<T, Tensor>) const T& input_for(const Module&, const T& x) { return x; }

// The same for model(x, more...): several inputs, or inputs that are not f32.
template <std::derived_from<Module> M, typename... More>
std::string summary(M& module, const Tensor& x, const More&... more) {
  return summary(module, [&] { module(input_for(module, x), input_for(module, more)...); });
}

}  // namespace lockstep
