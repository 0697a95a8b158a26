#include "lockstep/ops/recurrent.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

// Gate i, or `count` gates from i on, of a view whose first axis has the gates.
View gate(const View& all, std::int64_t i, std::int64_t count = 1) {
  View part = all;
  const std::int64_t rows = all.shape[1], hidden = all.shape[2];
  part.shape = count == 1 ? Shape{rows, hidden} : Shape{count, rows, hidden};
  part.data = static_cast<std::byte*>(all.data) + i * rows * hidden * static_cast<std::int64_t>(item_size(all.dtype));
  return part;
}

// [N, gates H] to [gates, N, H], or back.
StridedCopy by_gate(std::int64_t gates, std::int64_t rows, std::int64_t hidden, bool back) {
  StridedCopy copy{.extent = {gates, rows, hidden}};
  copy.from = {hidden, gates * hidden, 1};
  copy.to = {rows * hidden, hidden, 1};
  if (back) std::swap(copy.from, copy.to);
  return copy;
}

// The inputs of a cell in plain layout: the products of x and of the state [N, gates H], and the state before the step
// [N, H].
struct CellInputs {
  Array from_x, from_h, before;
};

CellInputs cell_inputs(std::string_view what, std::int64_t gates, const Array& from_x, const Array& from_h,
                       const Array& state) {
  check_same(what, from_x, from_h);
  check_dim(what, "gates", from_x, 2, "N, gates H");
  check_dim(what, "state", state, 2, "N, H");
  check(from_x.shape() == Shape{state.size(0), gates * state.size(1)} && from_x.dtype() == state.dtype(),
        "{}: the gates are {}, the state is {}, expected [N, {} H] and [N, H] of one type", what, from_x, state, gates);
  return {to_layout(from_x, Layout::plain), to_layout(from_h, Layout::plain), to_layout(state, Layout::plain)};
}

// Memory for `gates` gates of a state, one after the other.
Array by_part(std::int64_t gates, const Array& state) {
  return empty({gates, state.size(0), state.size(1)}, state.dtype(), state.device());
}

}  // namespace

LstmCell lstm_cell(const Array& from_x, const Array& from_h, const Array& c) {
  const CellInputs in = cell_inputs("lstm", 4, from_x, from_h, c);
  const Array sum = empty_like(in.from_x);
  LstmCell cell{empty_like(in.before), empty_like(in.before), by_part(4, c), empty_like(in.before)};
  launch("lstm", {in.from_x, in.from_h, in.before}, {cell.h, cell.c, cell.gates, cell.squashed, sum},
         [copy = by_gate(4, c.size(0), c.size(1), false), x = in.from_x.view(), y = in.from_h.view(),
          before = in.before.view(), h = cell.h.view(), next = cell.c.view(), gates = cell.gates.view(),
          squashed = cell.squashed.view(), sum = sum.view()](Backend& b, KernelContext& ctx) {
           b.run(ctx, kernels::Binary{BinaryOp::add, x, y, sum});
           b.run(ctx, kernels::CopyStrided{copy, sum, gates});
           b.run(ctx, kernels::Unary{UnaryOp::sigmoid, gate(gates, 0, 2), gate(gates, 0, 2)});
           b.run(ctx, kernels::Unary{UnaryOp::tanh, gate(gates, 2), gate(gates, 2)});
           b.run(ctx, kernels::Unary{UnaryOp::sigmoid, gate(gates, 3), gate(gates, 3)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(gates, 1), before, next});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(gates, 0), gate(gates, 2), h});
           b.run(ctx, kernels::Binary{BinaryOp::add, next, h, next});
           b.run(ctx, kernels::Unary{UnaryOp::tanh, next, squashed});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(gates, 3), squashed, h});
         });
  return cell;
}

LstmCellGrads lstm_cell_backward(const Array& gates, const Array& squashed, const Array& c, const Array& dh,
                                 const Array& dc) {
  check(dh.defined() || dc.defined(), "lstm backward: neither result has a gradient");
  const std::int64_t rows = c.size(0), hidden = c.size(1);
  const auto plain = [](const Array& x) { return x.defined() ? to_layout(x, Layout::plain) : x; };
  const Array before = plain(c), dy = plain(dh), dn = plain(dc);
  const Array d = empty_like(gates), dnext = empty_like(before);
  LstmCellGrads grads{empty({rows, 4 * hidden}, c.dtype(), c.device()), empty_like(before)};
  launch("lstm backward", {gates, squashed, before, dy, dn}, {grads.sum, grads.c, d, dnext},
         [copy = by_gate(4, rows, hidden, true), gates = gates.view(), t = squashed.view(), before = before.view(),
          dh = dy.view(), dc = dn.view(), d = d.view(), dnext = dnext.view(), sum = grads.sum.view(),
          dbefore = grads.c.view()](Backend& b, KernelContext& ctx) {
           View total = dc;
           if (dh) {
             b.run(ctx, kernels::Binary{BinaryOp::multiply, dh, gate(gates, 3), dnext});
             b.run(ctx, kernels::UnaryBackward{UnaryOp::tanh, t, dnext, dnext});
             if (dc) b.run(ctx, kernels::Binary{BinaryOp::add, dnext, dc, dnext});
             total = dnext;
             b.run(ctx, kernels::Binary{BinaryOp::multiply, dh, t, gate(d, 3)});
             b.run(ctx, kernels::UnaryBackward{UnaryOp::sigmoid, gate(gates, 3), gate(d, 3), gate(d, 3)});
           } else {
             b.run(ctx, kernels::Fill{0, gate(d, 3)});
           }
           b.run(ctx, kernels::Binary{BinaryOp::multiply, total, gate(gates, 2), gate(d, 0)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, total, before, gate(d, 1)});
           b.run(ctx, kernels::UnaryBackward{UnaryOp::sigmoid, gate(gates, 0, 2), gate(d, 0, 2), gate(d, 0, 2)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, total, gate(gates, 0), gate(d, 2)});
           b.run(ctx, kernels::UnaryBackward{UnaryOp::tanh, gate(gates, 2), gate(d, 2), gate(d, 2)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, total, gate(gates, 1), dbefore});
           b.run(ctx, kernels::CopyStrided{copy, d, sum});
         });
  return grads;
}

GruCell gru_cell(const Array& from_x, const Array& from_h, const Array& h) {
  const CellInputs in = cell_inputs("gru", 3, from_x, from_h, h);
  GruCell cell{empty_like(in.before), by_part(3, h), by_part(3, h)};
  launch("gru", {in.from_x, in.from_h, in.before}, {cell.h, cell.gates, cell.parts},
         [copy = by_gate(3, h.size(0), h.size(1), false), x = in.from_x.view(), y = in.from_h.view(),
          before = in.before.view(), h = cell.h.view(), gates = cell.gates.view(),
          parts = cell.parts.view()](Backend& b, KernelContext& ctx) {
           b.run(ctx, kernels::CopyStrided{copy, x, gates});
           b.run(ctx, kernels::CopyStrided{copy, y, parts});
           b.run(ctx, kernels::Binary{BinaryOp::add, gate(gates, 0, 2), gate(parts, 0, 2), gate(gates, 0, 2)});
           b.run(ctx, kernels::Unary{UnaryOp::sigmoid, gate(gates, 0, 2), gate(gates, 0, 2)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(gates, 0), gate(parts, 2), h});
           b.run(ctx, kernels::Binary{BinaryOp::add, gate(gates, 2), h, gate(gates, 2)});
           b.run(ctx, kernels::Unary{UnaryOp::tanh, gate(gates, 2), gate(gates, 2)});
           b.run(ctx, kernels::Binary{BinaryOp::subtract, before, gate(gates, 2), h});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(gates, 1), h, h});
           b.run(ctx, kernels::Binary{BinaryOp::add, gate(gates, 2), h, h});
         });
  return cell;
}

GruCellGrads gru_cell_backward(const Array& gates, const Array& parts, const Array& h, const Array& dh) {
  const std::int64_t rows = h.size(0), hidden = h.size(1);
  const Array before = to_layout(h, Layout::plain), dy = to_layout(dh, Layout::plain);
  const Array d = empty_like(gates);
  const auto sum = [&] { return empty({rows, 3 * hidden}, h.dtype(), h.device()); };
  GruCellGrads grads{sum(), sum(), empty_like(before)};
  launch("gru backward", {gates, parts, before, dy}, {grads.h, grads.from_x, grads.from_h, d},
         [copy = by_gate(3, rows, hidden, true), gates = gates.view(), parts = parts.view(), before = before.view(),
          dh = dy.view(), d = d.view(), dbefore = grads.h.view(), dx = grads.from_x.view(),
          dy = grads.from_h.view()](Backend& b, KernelContext& ctx) {
           b.run(ctx, kernels::Binary{BinaryOp::subtract, before, gate(gates, 2), gate(d, 1)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, dh, gate(d, 1), gate(d, 1)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, dh, gate(gates, 1), dbefore});
           b.run(ctx, kernels::Binary{BinaryOp::subtract, dh, dbefore, gate(d, 2)});
           b.run(ctx, kernels::UnaryBackward{UnaryOp::tanh, gate(gates, 2), gate(d, 2), gate(d, 2)});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(d, 2), gate(parts, 2), gate(d, 0)});
           b.run(ctx, kernels::UnaryBackward{UnaryOp::sigmoid, gate(gates, 0, 2), gate(d, 0, 2), gate(d, 0, 2)});
           b.run(ctx, kernels::CopyStrided{copy, d, dx});
           b.run(ctx, kernels::Binary{BinaryOp::multiply, gate(d, 2), gate(gates, 0), gate(d, 2)});
           b.run(ctx, kernels::CopyStrided{copy, d, dy});
         });
  return grads;
}

}  // namespace lockstep::ops
