// Internal: the gradient of a tensor as a tensor of its own, for functions and hooks of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/tensor_impl.h"

namespace lockstep {

struct BackwardPass;

// The properties that a gradient shares with its tensor, without the tensor's memory.
struct Outline {
  bool defined;
  Kind kind;
  Shape shape;
  DType dtype;
  std::vector<Device> devices;
  std::shared_ptr<const Placement> at;
  Cut cut;

  explicit Outline(const Tensor& t);
  // Whether a tensor can be the gradient of this one.
  bool fits(const Tensor& gradient) const;
  std::string str() const;
};

// The gradient with the kind and placement of its tensor, undefined if there is none.
Tensor as_tensor(const Gradient& g, const Outline& of, const BackwardPass& pass);
Tensor zeros_of(const Outline& of, const BackwardPass& pass);
// Adds the gradient g, which fits `of`, to what has arrived.
void add_tensor(Gradient& sum, const Tensor& g, const Outline& of);

}  // namespace lockstep
