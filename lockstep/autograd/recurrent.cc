// Computes the inputs' products for all steps at once, and the states' products step by step. A cell's step is one
// more task.
#include "lockstep/autograd/recurrent.h"

#include <functional>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/recurrent.h"

namespace lockstep {
namespace {

// Half types become f32: states and products are rounded, gates are not.
Tensor in_f32(const Tensor& x) { return is_half_dtype(x.dtype()) ? cast(x, DType::f32) : x; }

// The parts for the gates: [N, gates * H] -> gates x [N, H].
std::vector<Tensor> by_gate(const Tensor& x, int gates) { return unbind(unflatten(x, -1, {gates, -1}), -2); }

// step(inputs' part for one step, states' part) returns the next h. `states` hold the initial states.
Tensor over_steps(std::string_view what, const Tensor& input, std::initializer_list<Tensor*> states,
                  const RecurrentWeights& w, const RecurrentPass& pass, int gates,
                  const std::function<Tensor(const Tensor& from_x, const Tensor& from_h)>& step) {
  const Tensor x = autocast(input);
  const bool projects = w.weight_hr.defined();
  check(!projects || w.weight_hr.shape().dim() == 2, "{}: projection is {}, expected [P, H]", what, w.weight_hr);
  check(w.weight_ih.defined() && w.weight_hh.defined() && w.weight_hh.shape().dim() == 2 &&
            w.weight_hh.size(0) == gates * (projects ? w.weight_hr.size(1) : w.weight_hh.size(1)) &&
            (!projects || w.weight_hr.size(0) == w.weight_hh.size(1)),
        "{}: weight of the state is {}, expected [{} H, {}]", what, w.weight_hh, gates, projects ? "P" : "H");
  check(x.defined() && x.shape().dim() == 3 && w.weight_ih.shape() == Shape{w.weight_hh.size(0), x.size(2)},
        "{}: input is {}, its weight {}, expected 3 axes ({}, features) and [{}, features]", what, x, w.weight_ih,
        pass.batch_first ? "N, T" : "T, N", w.weight_hh.size(0));
  const int time = pass.batch_first ? 1 : 0;
  const std::int64_t hidden = w.weight_hh.size(0) / gates, samples = x.size(1 - time);
  check(x.size(time) > 0, "{}: {} has no time steps, expected at least 1", what, x);
  const std::vector<Tensor> from_x = unbind(linear(x, w.weight_ih, w.bias_ih), time);
  for (Tensor* state : states) {
    const std::int64_t features = state == *states.begin() ? w.weight_hh.size(1) : hidden;
    if (!state->defined()) *state = zeros_like(narrow(from_x[0].detach(), 1, 0, features));
    *state = autocast(*state);
    check(state->shape() == Shape{samples, features}, "{}: state is {}, expected [{}, {}]", what, state->describe(),
          samples, features);
  }
  Tensor& h = **states.begin();
  std::vector<Tensor> outputs(from_x.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t t = pass.reverse ? outputs.size() - 1 - i : i;
    const Tensor next = cast(step(in_f32(from_x[t]), in_f32(linear(h, w.weight_hh, w.bias_hh))), x.dtype());
    h = outputs[t] = projects ? linear(next, w.weight_hr) : next;
  }
  return stack(outputs, time);
}

// Whether both are cut, or both whole, with one type and their samples in the same places.
bool lie_alike(const Tensor& a, const Tensor& b) {
  if (a->kind != b->kind || a->kind == Kind::replicated || a.dtype() != b.dtype()) return false;
  if (a->kind == Kind::whole) return a.device() == b.device() && a->at == b->at;
  return a->at == b->at && a->cut == b->cut;
}

// Calls f(part) in the shard of each part of `like`.
template <typename F>
void each_part(const Tensor& like, const F& f) {
  for (std::size_t p = 0; p < like->parts.size(); ++p) {
    ops::ShardScope scope(like->kind == Kind::cut ? like->at->slots()[p].shard : ops::ShardScope::current());
    f(p);
  }
}

Tensor made_like(const Tensor& like, std::vector<Array> parts) {
  if (like->kind == Kind::cut) return cut_tensor(like->at, like->cut, std::move(parts));
  return like->at ? shard_tensor(like->at, std::move(parts[0])) : Tensor(std::move(parts[0]));
}

// A trace sees the steps as one operation: (x, weights, first states) -> (outputs, last states).
template <typename F>
Tensor traced_steps(std::string_view kind, const Tensor& x, std::initializer_list<Tensor*> states,
                    const RecurrentWeights& w, const RecurrentPass& pass, const F& f) {
  ForwardTrace* const trace = ForwardTrace::current();
  if (!trace || w.weight_hr.defined()) return f();  // with a projection, the steps are traced one by one
  std::vector<Tensor> in{x, w.weight_ih, w.weight_hh, w.bias_ih, w.bias_hh};
  for (const Tensor* state : states) in.push_back(*state);
  const TracePause pause;
  std::vector<Tensor> out{f()};
  for (const Tensor* state : states) out.push_back(*state);
  trace->operation(kind, in, out,
                   {kind, {{"batch_first", std::int64_t{pass.batch_first}}, {"reverse", std::int64_t{pass.reverse}}}});
  return out[0];
}

// A step of an LSTM part by part: (from_x, from_h, c) -> (h, next c).
struct LstmCell : Function {
  std::vector<Tensor> forward(std::span<const Tensor> in) {
    std::vector<Array> h, next;
    each_part(in[0], [&](std::size_t p) {
      ops::LstmCell cell = ops::lstm_cell(in[0]->parts[p], in[1]->parts[p], in[2]->parts[p]);
      saved.push_back({cell.gates, cell.squashed, in[2]->parts[p]});
      h.push_back(cell.h);
      next.push_back(cell.c);
    });
    return {made_like(in[0], std::move(h)), made_like(in[0], std::move(next))};
  }

  std::vector<Tensor> backward(std::span<const Tensor> dy) {
    std::vector<Array> sum, c;
    const Tensor& some = dy[0].defined() ? dy[0] : dy[1];
    each_part(some, [&](std::size_t p) {
      const auto part = [p](const Tensor& g) { return g.defined() ? g->parts[p] : Array(); };
      const Saved& s = saved[p];
      ops::LstmCellGrads grads = ops::lstm_cell_backward(s.gates.get("lstm"), s.squashed.get("lstm"), s.c.get("lstm"),
                                                         part(dy[0]), part(dy[1]));
      sum.push_back(std::move(grads.sum));
      c.push_back(std::move(grads.c));
    });
    const Tensor both = made_like(some, std::move(sum));
    return {both, both, made_like(some, std::move(c))};
  }

 private:
  struct Saved {
    SavedArray gates, squashed, c;
  };
  std::vector<Saved> saved;  // by part
};

// A step of a GRU part by part: (from_x, from_h, h) -> next h.
struct GruCell : Function {
  std::vector<Tensor> forward(std::span<const Tensor> in) {
    std::vector<Array> next;
    each_part(in[0], [&](std::size_t p) {
      ops::GruCell cell = ops::gru_cell(in[0]->parts[p], in[1]->parts[p], in[2]->parts[p]);
      saved.push_back({cell.gates, cell.parts, in[2]->parts[p]});
      next.push_back(cell.h);
    });
    return {made_like(in[0], std::move(next))};
  }

  std::vector<Tensor> backward(std::span<const Tensor> dy) {
    std::vector<Array> from_x, from_h, h;
    each_part(dy[0], [&](std::size_t p) {
      const Saved& s = saved[p];
      ops::GruCellGrads grads =
          ops::gru_cell_backward(s.gates.get("gru"), s.parts.get("gru"), s.h.get("gru"), dy[0]->parts[p]);
      from_x.push_back(std::move(grads.from_x));
      from_h.push_back(std::move(grads.from_h));
      h.push_back(std::move(grads.h));
    });
    return {made_like(dy[0], std::move(from_x)), made_like(dy[0], std::move(from_h)), made_like(dy[0], std::move(h))};
  }

 private:
  struct Saved {
    SavedArray gates, parts, h;
  };
  std::vector<Saved> saved;  // by part
};

}  // namespace

Tensor lstm_layer(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& weights, const RecurrentPass& pass) {
  const auto step = [&c](const Tensor& from_x, const Tensor& from_h) {
    // A trace gets the operations that make up the cell.
    if (const Tensor before = in_f32(c);
        !ForwardTrace::current() && lie_alike(from_x, from_h) && lie_alike(from_x, before)) {
      std::vector<Tensor> out = apply<LstmCell>(std::vector{from_x, from_h, before});
      c = cast(out[1], c.dtype());
      return out[0];
    }
    // For a first state with another placement, such as a parameter.
    const std::vector<Tensor> gates = by_gate(from_x + from_h, 4);
    const Tensor next = sigmoid(gates[1]) * in_f32(c) + sigmoid(gates[0]) * tanh(gates[2]);
    c = cast(next, c.dtype());
    return sigmoid(gates[3]) * tanh(next);
  };
  return traced_steps("lstm", x, {&h, &c}, weights, pass, [&] {
    return over_steps("lstm", x, {&h, &c}, weights, pass, 4, step);
  });
}

Tensor gru_layer(const Tensor& x, Tensor& h, const RecurrentWeights& weights, const RecurrentPass& pass) {
  const auto step = [&h](const Tensor& from_x, const Tensor& from_h) {
    const Tensor before = in_f32(h);
    if (lie_alike(from_x, from_h) && lie_alike(from_x, before)) {
      return apply<GruCell>(std::vector{from_x, from_h, before})[0];
    }
    // For a first state with another placement, such as a parameter.
    const std::vector<Tensor> gx = by_gate(from_x, 3), gh = by_gate(from_h, 3);
    const Tensor r = sigmoid(gx[0] + gh[0]), z = sigmoid(gx[1] + gh[1]), n = tanh(gx[2] + r * gh[2]);
    return n + z * (before - n);
  };
  return traced_steps("gru", x, {&h}, weights, pass,
                      [&] { return over_steps("gru", x, {&h}, weights, pass, 3, step); });
}

Tensor rnn_layer(const Tensor& x, Tensor& h, const RecurrentWeights& weights, const RecurrentPass& pass, bool relu) {
  const auto step = [relu](const Tensor& from_x, const Tensor& from_h) {
    const Tensor sum = from_x + from_h;
    return relu ? lockstep::relu(sum) : tanh(sum);
  };
  return traced_steps(relu ? "rnn_relu" : "rnn_tanh", x, {&h}, weights, pass,
                      [&] { return over_steps("rnn", x, {&h}, weights, pass, 1, step); });
}

}  // namespace lockstep
