#include "lockstep/ops/softmax.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

using RowKernel = void (SoftmaxKernels::*)(KernelContext&, const View&, const View&);
using RowBackward = void (SoftmaxKernels::*)(KernelContext&, const View&, const View&, const View&);

Tensor by_row(std::string_view what, const Tensor& x, RowKernel kernel) {
  check_on_device(what, x);
  check(x.shape().rank() >= 1, "{}: input has no axes", what);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  Tensor in = to_layout(x, Layout::plain);
  Tensor y = empty_like(in);
  launch(what, {in}, {y},
         [kernel, x = in.view(), y = y.view()](Backend& b, KernelContext& c) { (b.softmax().*kernel)(c, x, y); });
  return y;
}

Tensor by_row_backward(std::string_view what, const Tensor& y, const Tensor& dy, RowBackward kernel) {
  check_same(what, y, dy);
  Tensor g = to_layout(dy, Layout::plain);
  Tensor dx = empty_like(y);
  launch(what, {y, g}, {dx}, [kernel, y = y.view(), dy = g.view(), dx = dx.view()](Backend& b, KernelContext& c) {
    (b.softmax().*kernel)(c, y, dy, dx);
  });
  return dx;
}

DType loss_dtype(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

Tensor softmax(const Tensor& x) { return by_row("softmax", x, &SoftmaxKernels::softmax); }
Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  return by_row_backward("softmax backward", y, dy, &SoftmaxKernels::softmax_backward);
}
Tensor log_softmax(const Tensor& x) { return by_row("log softmax", x, &SoftmaxKernels::log_softmax); }
Tensor log_softmax_backward(const Tensor& y, const Tensor& dy) {
  return by_row_backward("log softmax backward", y, dy, &SoftmaxKernels::log_softmax_backward);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing) {
  check_rank("cross_entropy", "logits", logits, 2, "(n, classes)");
  check_rank("cross_entropy", "labels", labels, 1, "(n)");
  check(labels.dtype() == DType::i64, "cross_entropy: labels are {}, expected i64", name(labels.dtype()));
  check(logits.size(0) == labels.size(0), "cross_entropy: {} rows of logits, {} labels", logits.size(0),
        labels.size(0));
  check(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy: label smoothing {}, expected 0 to 1",
        label_smoothing);
  Tensor loss = empty({1}, loss_dtype(logits), logits.device());
  launch("cross entropy", {logits, labels}, {loss},
         [label_smoothing, x = logits.view(), l = labels.view(), loss = loss.view()](Backend& b, KernelContext& c) {
           b.softmax().cross_entropy(c, x, l, label_smoothing, loss);
         });
  return loss;
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& labels, double label_smoothing,
                              const Tensor& dloss) {
  Tensor dx = empty_like(logits);
  launch("cross entropy backward", {logits, labels, dloss}, {dx},
         [label_smoothing, x = logits.view(), l = labels.view(), g = dloss.view(), dx = dx.view()](
             Backend& b, KernelContext& c) { b.softmax().cross_entropy_backward(c, x, l, label_smoothing, g, dx); });
  return dx;
}

Tensor mse(const Tensor& x, const Tensor& target) {
  check_same("mse", x, target);
  check(is_floating(x.dtype()), "mse: input is {}, expected a floating type", name(x.dtype()));
  Tensor t = to_layout(target, x.layout());
  Tensor loss = empty({1}, loss_dtype(x), x.device());
  launch("mse", {x, t}, {loss}, [x = x.view(), t = t.view(), loss = loss.view()](Backend& b, KernelContext& c) {
    b.softmax().mse(c, x, t, loss);
  });
  return loss;
}

Tensor mse_backward(const Tensor& x, const Tensor& target, const Tensor& dloss) {
  Tensor t = to_layout(target, x.layout());
  Tensor dx = empty_like(x);
  launch("mse backward", {x, t, dloss}, {dx},
         [x = x.view(), t = t.view(), g = dloss.view(), dx = dx.view()](Backend& b, KernelContext& c) {
           b.softmax().mse_backward(c, x, t, g, dx);
         });
  return dx;
}

}  // namespace lockstep::ops
