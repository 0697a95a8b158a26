// Differentiable functions with random inputs, and the two ways to find their gradients: backward() and
// central differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {

struct Input {
  Shape shape;
  double low = -1, high = 1;
  // Weights and the like: f32 where the data are bf16 or f16.
  bool master = false;
  // At least 0.1 away from zero, where some functions have a kink.
  bool away_from_zero = false;
};

struct Problem {
  std::vector<Input> inputs;
  std::function<Tensor(std::span<const Tensor>)> function;
};

struct Differentiable {
  std::string name;
  // With random shapes.
  std::function<Problem(Random&)> make;
};
void PrintTo(const Differentiable& d, std::ostream* os);

// Every function of autograd/functions.h whose gradient exists in f64.
std::vector<Differentiable> differentiable_functions();
// The ones among them that basis_functions.cc describes.
std::vector<Differentiable> basis_functions();
// Those that loss_functions.cc describes.
std::vector<Differentiable> loss_functions();
// Those that layer_functions.cc describes.
std::vector<Differentiable> layer_functions();

using Values = std::vector<std::vector<double>>;

// For each input.
Values random_values(const Problem& problem, Random& random);
// Rounds to what a type holds.
Values rounded(const Problem& problem, Values values, DType dtype, Device device);

// The gradients of sum(weights * function(inputs)), weights being random numbers. The output's values come
// last.
Values gradients(const Problem& problem, const Values& at, Device device, DType dtype);
// The same by central differences in f64.
Values central_differences(const Problem& problem, const Values& at, Device device);

}  // namespace lockstep::testing
