// A kernel call without its data: the key under which plans are cached. Private to the CPU back end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/backend/conv.h"
#include "lockstep/tensor/view.h"

namespace lockstep::onednn {

// y = conv(x, w) + bias and its gradients; y = op(x) op(w) + bias for matmul.
enum class Kind : std::uint8_t { conv_forward, conv_backward_data, conv_backward_weights, matmul };

// The operands of every kind, in this order. In a backward kind, an operand may stand for its gradient.
enum Role : int { kX, kW, kBias, kY, kRoles };

// A View without its data; an absent one has no axes.
struct OperandSpec {
  DType dtype = DType::f32;
  Layout layout = Layout::plain;
  Shape shape;

  static OperandSpec of(const View& v) { return {v.dtype, v.layout, v.shape}; }
  bool operator==(const OperandSpec&) const = default;
};

// Everything that a plan depends on.
struct Problem {
  Kind kind;
  int threads = 1;
  std::array<OperandSpec, kRoles> operands{};
  Conv2dOptions conv{};
  bool transpose_x = false;  // matmul
  bool transpose_w = false;

  bool is_output(int role) const;
  bool operator==(const Problem&) const = default;
};

struct ProblemHash {
  std::size_t operator()(const Problem&) const;
};

}  // namespace lockstep::onednn
