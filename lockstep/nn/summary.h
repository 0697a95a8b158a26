// A model as a table: what its layers are, what they compute, and how many parameters they have.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

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
// A layer's parameters are its own, without those of layers in it. Parameters that layers share count where they are first.
// A layer that was called several times has its last output. One that was not called by operator() has none, unless it is
// one of the library's.
//
// The model is called once, on zeros of this shape on its first device, in evaluation mode and without a history. This
// settles shapes that are not known yet, as a first batch does, and changes nothing else: modes, statistics, gradients, and
// the next random numbers stay.
std::string summary(Module& module, const Shape& input, DType dtype = DType::f32);

// For a model that is called otherwise: `call` does it.
std::string summary(Module& module, const std::function<void()>& call);

// x in host memory goes to the model's first device; else x where it is. Anything but a tensor stays as it is.
Tensor input_for(const Module& module, const Tensor& x);
template <typename T>
requires(!std::convertible_to<T, Tensor>) const T& input_for(const Module&, const T& x) { return x; }

// The same, for model(x, more...): several inputs, or numbers of words.
template <std::derived_from<Module> M, typename... More>
std::string summary(M& module, const Tensor& x, const More&... more) {
  return summary(module, [&] { module(input_for(module, x), input_for(module, more)...); });
}

}  // namespace lockstep
