// Internal: one step of an LSTM or a GRU as one task. The task calls the same kernels as the operations of the formula,
// so it has the same bits.
#pragma once

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

struct LstmCell {
  Array h, c;  // [N, H]
  // For backward: [4, N, H], sigmoid of the parts i and f, tanh of g, and sigmoid of o; and tanh(c).
  Array gates, squashed;
};

// i, f, g, o are the parts of from_x + from_h, both [N, 4 H]:
// next c = sigmoid(f) c + sigmoid(i) tanh(g),  h = sigmoid(o) tanh(next c)
LstmCell lstm_cell(const Array& from_x, const Array& from_h, const Array& c);

struct LstmCellGrads {
  Array sum;  // [N, 4 H], of from_x and of from_h
  Array c;
};

// `c` is the state before the step. One of dh and dc, the gradients of the results, may be undefined.
LstmCellGrads lstm_cell_backward(const Array& gates, const Array& squashed, const Array& c, const Array& dh,
                                 const Array& dc);

struct GruCell {
  Array h;  // [N, H]
  // For backward: [3, N, H], r, z, and n; and the parts of from_h.
  Array gates, parts;
};

// from_x and from_h are [N, 3 H]; h [N, H] is the state before the step:
// r, z = sigmoid of the sums of the first two parts,  n = tanh(third part of from_x + r * third part of from_h),
// next h = n + z (h - n)
GruCell gru_cell(const Array& from_x, const Array& from_h, const Array& h);

struct GruCellGrads {
  Array from_x, from_h;  // [N, 3 H]
  Array h;
};

// `h` is the state before the step, dh the gradient of the state after it.
GruCellGrads gru_cell_backward(const Array& gates, const Array& parts, const Array& h, const Array& dh);

}  // namespace lockstep::ops
