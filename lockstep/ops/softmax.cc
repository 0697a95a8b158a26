#include "lockstep/ops/softmax.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

using RowKernel = void (SoftmaxKernels::*)(KernelContext&, const View&, const View&);
using RowBackward = void (SoftmaxKernels::*)(KernelContext&, const View&, const View&, const View&);

Array by_row(std::string_view what, const Array& x, RowKernel kernel) {
  check_on_device(what, x);
  check(x.shape().dim() >= 1, "{}: input has no axes", what);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  Array in = to_layout(x, Layout::plain);
  Array y = empty_like(in);
  launch(what, {in}, {y},
         [kernel, x = in.view(), y = y.view()](Backend& b, KernelContext& c) { (b.softmax().*kernel)(c, x, y); });
  return y;
}

Array by_row_backward(std::string_view what, const Array& y, const Array& dy, RowBackward kernel) {
  check_same(what, y, dy);
  Array g = to_layout(dy, Layout::plain);
  Array dx = empty_like(y);
  launch(what, {y, g}, {dx}, [kernel, y = y.view(), dy = g.view(), dx = dx.view()](Backend& b, KernelContext& c) {
    (b.softmax().*kernel)(c, y, dy, dx);
  });
  return dx;
}

DType loss_dtype(const Array& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

Array softmax(const Array& x) { return by_row("softmax", x, &SoftmaxKernels::softmax); }
Array softmax_backward(const Array& y, const Array& dy) {
  return by_row_backward("softmax backward", y, dy, &SoftmaxKernels::softmax_backward);
}
Array log_softmax(const Array& x) { return by_row("log softmax", x, &SoftmaxKernels::log_softmax); }
Array log_softmax_backward(const Array& y, const Array& dy) {
  return by_row_backward("log softmax backward", y, dy, &SoftmaxKernels::log_softmax_backward);
}

Array cross_entropy(const Array& logits, const Array& labels, const LabelRules& rules) {
  check_dim("cross_entropy", "logits", logits, 2, "(n, classes)");
  check_dim("cross_entropy", "labels", labels, 1, "(n)");
  check(labels.dtype() == DType::i64, "cross_entropy: labels are {}, expected i64", name(labels.dtype()));
  check(logits.size(0) == labels.size(0),
        "cross_entropy: {} rows of logits, {} labels, expected one label for each row", logits.size(0), labels.size(0));
  check(rules.smoothing >= 0 && rules.smoothing <= 1, "cross_entropy: label smoothing {}, expected 0 to 1",
        rules.smoothing);
  Array sums = empty({3}, loss_dtype(logits), logits.device());
  launch("cross entropy", {logits, labels}, {sums},
         [rules, x = logits.view(), l = labels.view(), sums = sums.view()](Backend& b, KernelContext& c) {
           b.softmax().cross_entropy(c, x, l, rules, sums);
         });
  return sums;
}

Array cross_entropy_mean(const Array& sums, std::optional<LaneId> lane) {
  Array loss = empty({1}, sums.dtype(), sums.device());
  launch("cross entropy mean", {sums}, {loss},
         [sums = sums.view(), loss = loss.view()](Backend& b, KernelContext& c) {
           b.softmax().cross_entropy_mean(c, sums, loss);
         },
         {.lane = lane});
  return loss;
}

Array cross_entropy_backward(const Array& logits, const Array& labels, const LabelRules& rules, const Array& sums,
                             const Array& dloss) {
  Array dx = empty_like(logits);
  launch("cross entropy backward", {logits, labels, sums, dloss}, {dx},
         [rules, x = logits.view(), l = labels.view(), sums = sums.view(), g = dloss.view(), dx = dx.view()](
             Backend& b, KernelContext& c) { b.softmax().cross_entropy_backward(c, x, l, rules, sums, g, dx); });
  return dx;
}

Array mse(const Array& x, const Array& target) {
  check_same("mse", x, target);
  check(is_floating(x.dtype()), "mse: input is {}, expected a floating type", name(x.dtype()));
  Array t = to_layout(target, x.layout());
  Array loss = empty({1}, loss_dtype(x), x.device());
  launch("mse", {x, t}, {loss}, [x = x.view(), t = t.view(), loss = loss.view()](Backend& b, KernelContext& c) {
    b.softmax().mse(c, x, t, loss);
  });
  return loss;
}

Array mse_backward(const Array& x, const Array& target, const Array& dloss) {
  Array t = to_layout(target, x.layout());
  Array dx = empty_like(x);
  launch("mse backward", {x, t, dloss}, {dx},
         [x = x.view(), t = t.view(), g = dloss.view(), dx = dx.view()](Backend& b, KernelContext& c) {
           b.softmax().mse_backward(c, x, t, g, dx);
         });
  return dx;
}

}  // namespace lockstep::ops
