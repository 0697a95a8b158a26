#include "lockstep/ops/softmax.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

template <typename Call>
Array by_row(std::string_view what, const Array& x) {
  check_defined(what, x);
  check(x.shape().dim() >= 1, "{}: input has no axes", what);
  check(is_floating(x.dtype()), "{}: input is {}, expected a floating type", what, name(x.dtype()));
  Array in = to_layout(x, Layout::plain);
  Array y = empty_like(in);
  launch(what, {in}, {y}, Call{in.view(), y.view()});
  return y;
}

template <typename Call>
Array by_row_backward(std::string_view what, const Array& y, const Array& dy) {
  check_same(what, y, dy);
  Array g = to_layout(dy, Layout::plain);
  Array dx = empty_like(y);
  launch(what, {y, g}, {dx}, Call{y.view(), g.view(), dx.view()});
  return dx;
}

DType loss_dtype(const Array& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

}  // namespace

Array softmax(const Array& x) { return by_row<kernels::Softmax>("softmax", x); }
Array softmax_backward(const Array& y, const Array& dy) {
  return by_row_backward<kernels::SoftmaxBackward>("softmax backward", y, dy);
}
Array log_softmax(const Array& x) { return by_row<kernels::LogSoftmax>("log softmax", x); }
Array log_softmax_backward(const Array& y, const Array& dy) {
  return by_row_backward<kernels::LogSoftmaxBackward>("log softmax backward", y, dy);
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
         kernels::CrossEntropy{logits.view(), labels.view(), rules, sums.view()});
  return sums;
}

Array cross_entropy_mean(const Array& sums, std::optional<LaneId> lane) {
  Array loss = empty({1}, sums.dtype(), sums.device());
  launch("cross entropy mean", {sums}, {loss}, kernels::CrossEntropyMean{sums.view(), loss.view()}, {.lane = lane});
  return loss;
}

Array cross_entropy_backward(const Array& logits, const Array& labels, const LabelRules& rules, const Array& sums,
                             const Array& dloss) {
  Array dx = empty_like(logits);
  launch("cross entropy backward", {logits, labels, sums, dloss}, {dx},
         kernels::CrossEntropyBackward{logits.view(), labels.view(), rules, sums.view(), dloss.view(), dx.view()});
  return dx;
}

Array mse(const Array& x, const Array& target) {
  check_same("mse", x, target);
  check(is_floating(x.dtype()), "mse: input is {}, expected a floating type", name(x.dtype()));
  Array t = to_layout(target, x.layout());
  Array loss = empty({1}, loss_dtype(x), x.device());
  launch("mse", {x, t}, {loss}, kernels::Mse{x.view(), t.view(), loss.view()});
  return loss;
}

Array mse_backward(const Array& x, const Array& target, const Array& dloss) {
  Array t = to_layout(target, x.layout());
  Array dx = empty_like(x);
  launch("mse backward", {x, t, dloss}, {dx}, kernels::MseBackward{x.view(), t.view(), dloss.view(), dx.view()});
  return dx;
}

}  // namespace lockstep::ops
