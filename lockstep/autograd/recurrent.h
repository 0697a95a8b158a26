// Internal: one layer of a recurrent network in one direction: LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et
// al. 2014), with PyTorch's order of gates. nn/recurrent.h stacks them. In bf16 and f16, products and states are
// rounded at each step; gates are not.
#pragma once

#include "lockstep/autograd/tensor.h"

namespace lockstep {

struct RecurrentWeights {
  Tensor weight_ih;  // [gates * H, input]
  Tensor weight_hh;  // [gates * H, H], or [gates * H, P] with a projection
  Tensor bias_ih;    // [gates * H]; both biases are defined, or neither
  Tensor bias_hh;
  Tensor weight_hr;  // of an LSTM, if defined: [P, H], which takes each h to P features
};

struct RecurrentPass {
  bool batch_first = false;  // [N, T, ..] instead of [T, N, ..]
  bool reverse = false;      // from the last step to the first
};

// x [T, N, input] -> the states h of all steps [T, N, H]. h and c [N, H] are the state before the first step (undefined
// means zeros) and become the state after the last one. With a projection, h is [N, P], and so are the outputs.
//
//   i, f, g, o = the four parts of x weight_ih^T + bias_ih + h weight_hh^T + bias_hh
//   c = sigmoid(f) c + sigmoid(i) tanh(g),  h = sigmoid(o) tanh(c)
Tensor lstm_layer(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& weights,
                  const RecurrentPass& pass = {});

// The same for a GRU:
//
//   r, z = sigmoid of the sums of the first two parts,  n = tanh(third part of x + r * third part of h)
//   h = (1 - z) n + z h
Tensor gru_layer(const Tensor& x, Tensor& h, const RecurrentWeights& weights, const RecurrentPass& pass = {});

// The same for a plain recurrent network: h = f(x weight_ih^T + bias_ih + h weight_hh^T + bias_hh), f being relu or
// tanh.
Tensor rnn_layer(const Tensor& x, Tensor& h, const RecurrentWeights& weights, const RecurrentPass& pass, bool relu);

}  // namespace lockstep
