// Records the convolutions and matrix products of a training step, as calls that can be repeated.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "apps/lockstep/options/train_options.h"
#include "lockstep/backend/conv.h"
#include "lockstep/backend/matmul.h"

namespace lockstep::app {

// Shape, type, and layout of an operand; no axes if there is none.
struct CallOperand {
  Shape shape;
  DType dtype = DType::f32;
  Layout layout = Layout::plain;

  static CallOperand of(const View& v) { return v ? CallOperand{v.shape, v.dtype, v.layout} : CallOperand{}; }
  bool operator==(const CallOperand&) const = default;
};

// A call of kernels::PrepareConv: once for all shards of a device after each update.
struct PrepareConvCall {
  ConvPass pass;
  Conv2dOptions options;
  Shape x;
  CallOperand w;
  DType dtype;

  bool operator==(const PrepareConvCall&) const = default;
};

// The same for matrix products.
struct PrepareMatmulCall {
  MatmulOptions options;
  CallOperand b;
  DType dtype;

  bool operator==(const PrepareMatmulCall&) const = default;
};

struct ConvCall {
  ConvPass pass;
  Conv2dOptions options;
  CallOperand x, w, bias, y;
  bool prepared = false;

  bool operator==(const ConvCall&) const = default;
};

struct MatmulCall {
  MatmulOptions options;
  CallOperand a, b, bias, c;
  bool prepared = false;

  bool operator==(const MatmulCall&) const = default;
};

struct KernelCall {
  std::variant<PrepareConvCall, PrepareMatmulCall, ConvCall, MatmulCall> call;
  int count = 1;  // in a step

  // "conv2d forward [32, 64, 28, 28] 3x3 -> 64"
  std::string name() const;
  // Number of additions and multiplications of direct sums, including padding. 0 for preparing weights.
  double flops() const;
  // Type in which it multiplies.
  DType dtype() const;
};

// Runs one training step of the model, on made-up examples and one shard. Returns its calls in order, with a count for
// equal ones.
std::vector<KernelCall> kernel_calls(const TrainOptions& options);

}  // namespace lockstep::app
