// The losses: see autograd/losses.h.
#include "tests/autograd/gradient_testing.h"

namespace lockstep::testing {
namespace {

using In = std::span<const Tensor>;

// i64 numbers in [0, end), or `other` in place of every third.
Tensor labels_of(const Shape& shape, std::int64_t end, Device device, std::optional<std::int64_t> other = {}) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(other && i % 3 == 1 ? *other : (i * i + 1) % end);
  return Tensor::from(values, shape).to(device);
}

// A weight for each of `count` classes, in x's type or, beside half types, f32.
Tensor weights_of(std::int64_t count, const Tensor& x) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(0.5 + 0.25 * static_cast<double>(i));
  return make_tensor(values, {count}, x.device(), is_half_dtype(x.dtype()) ? DType::f32 : x.dtype());
}

// In the type of a loss.
Tensor sum_of(const Tensor& t) { return sum(is_half_dtype(t.dtype()) ? cast(t, DType::f32) : t); }

// Losses of x and a target of its shape, with any of the reductions.
Differentiable of_pair(std::string name, std::function<Tensor(const Tensor&, const Tensor&, Reduction)> f,
                       double low = -1, double high = 1) {
  return {std::move(name), [=](Random& r) {
            const Shape shape{r.integer(1, 3), r.integer(2, 4), r.integer(1, 2)};
            const auto reduction = static_cast<Reduction>(r.integer(0, 2));
            return Problem{{{.shape = shape, .low = -2, .high = 2}, {.shape = shape, .low = low, .high = high}},
                           [=](In in) { return f(in[0], in[1], reduction); }};
          }};
}

// Losses of rows of classes with labels.
Differentiable of_rows(std::string name,
                       std::function<Tensor(const Tensor& x, const Tensor& labels, const CrossEntropyOptions&)> f) {
  return {std::move(name), [=](Random& r) {
            const std::vector<Shape> shapes{{3, 4}, {4}, {2, 3, 4}, {2, 4, 2, 2}};
            const Shape shape = shapes[static_cast<std::size_t>(r.integer(0, 3))];
            const int axis = shape.dim() == 1 ? 0 : 1;
            std::vector<std::int64_t> rows(shape.begin(), shape.end());
            rows.erase(rows.begin() + axis);
            const bool weighted = r.integer(0, 1) == 1, ignores = r.integer(0, 1) == 1, smooth = r.integer(0, 1) == 1;
            const auto reduction = static_cast<Reduction>(r.integer(0, 2));
            return Problem{{{.shape = shape, .low = -2, .high = 2}}, [=](In in) {
                             CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smooth ? 0.2 : 0};
                             if (weighted) options.weight = weights_of(shape[axis], in[0]);
                             if (ignores) options.ignore_index = -100;
                             return f(in[0], labels_of(Shape(rows), shape[axis], in[0].device(), options.ignore_index),
                                      options);
                           }};
          }};
}

}  // namespace

std::vector<Differentiable> loss_functions() {
  return {
      of_pair("MseLossReduced",
              [](const Tensor& x, const Tensor& t, Reduction r) { return mse_loss(x, t, {.reduction = r}); }),
      of_pair("L1Loss", [](const Tensor& x, const Tensor& t, Reduction r) { return l1_loss(x, t, {.reduction = r}); }),
      of_pair("HuberLoss", [](const Tensor& x, const Tensor& t,
                              Reduction r) { return huber_loss(x, t, {.reduction = r, .delta = 0.7}); }),
      of_pair("SmoothL1Loss", [](const Tensor& x, const Tensor& t,
                                 Reduction r) { return smooth_l1_loss(x, t, {.reduction = r, .beta = 0.7}); }),
      of_pair(
          "BinaryCrossEntropyWithLogits",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            return binary_cross_entropy_with_logits(x * 3, t, {.reduction = r});
          },
          0, 1),
      of_pair(
          "BinaryCrossEntropyWeighted",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            const Tensor w = weights_of(x.size(1), x).reshape({x.size(1), 1});
            return binary_cross_entropy_with_logits(x, t, {.weight = w, .reduction = r, .pos_weight = w * 2});
          },
          0, 1),
      of_pair(
          "KlDiv",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            // Logarithms of probabilities, and probabilities.
            const Tensor p = softmax(t, 1);
            return kl_div(log_softmax(x, 1), p, {.reduction = r == Reduction::mean ? Reduction::batchmean : r});
          },
          0, 1),
      of_pair(
          "KlDivOfLogarithms",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            return kl_div(x, t, {.reduction = r, .log_target = true});
          },
          -2, 0),
      of_pair(
          "BinaryCrossEntropyOfProbabilities",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            return binary_cross_entropy(sigmoid(x), t, {.reduction = r});
          },
          0, 1),
      of_pair("GaussianNllLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                return gaussian_nll_loss(x, t, square(x) + 0.5, {.reduction = r});
              }),
      of_pair("PoissonNllLoss", [](const Tensor& x, const Tensor& t,
                                   Reduction r) { return poisson_nll_loss(x, t, {.full = true, .reduction = r}); }),
      of_pair("TripletMarginLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                return triplet_margin_loss(x, t, x * t, {.margin = 3, .swap = true, .reduction = r});
              }),
      of_pair("MarginRankingLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                return margin_ranking_loss(x, t * 2, sign(x.detach()), {.margin = 0.2, .reduction = r});
              }),
      of_pair("CosineEmbeddingLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                const Tensor a = flatten(x, 1), signs = sign(select(a.detach(), 1, 0));
                return cosine_embedding_loss(a, flatten(t, 1), signs, {.margin = -2, .reduction = r});
              }),
      of_pair("HingeEmbeddingLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                return hinge_embedding_loss(x, sign(t.detach()), {.reduction = r}) + sum_of(t);
              }),
      of_pair("SoftMarginLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) { return soft_margin_loss(x, t, {.reduction = r}); }),
      of_pair("MultilabelSoftMarginLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                return multilabel_soft_margin_loss(flatten(x, 1), flatten(sigmoid(t), 1), {.reduction = r});
              }),
      of_pair("MultilabelMarginLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                const Tensor labels = labels_of(x.shape(), x.size(1), x.device(), -1);
                return multilabel_margin_loss(select(x, 2, 0), select(labels, 2, 0), {.reduction = r}) + sum_of(t);
              }),
      of_pair("MultiMarginLoss",
              [](const Tensor& x, const Tensor& t, Reduction r) {
                const Tensor labels = labels_of({x.size(0)}, x.size(1), x.device());
                return multi_margin_loss(select(x, 2, 0), labels,
                                         {.p = 2, .weight = weights_of(x.size(1), x), .reduction = r}) +
                       sum_of(t);
              }),
      of_pair(
          "CtcLoss",
          [](const Tensor& x, const Tensor& t, Reduction r) {
            const std::int64_t n = x.size(0);
            const auto all = [&](std::int64_t value) {
              return Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(n), value), {n}).to(x.device());
            };
            // [T, N, C]: a label, which a blank or itself follows.
            const Tensor logits = cat({select(x, 2, 0), select(t, 2, 0), select(x * t, 2, 0)}, 1);
            const Tensor steps = permute(unflatten(logits, 1, {3, -1}), {1, 0, 2});
            return ctc_loss(log_softmax(steps), unsqueeze(all(1), 1), all(3), all(1), {.reduction = r});
          }),
      of_rows("NllLoss",
              [](const Tensor& x, const Tensor& labels, const CrossEntropyOptions& o) {
                return nll_loss(x, labels, {o.weight, o.ignore_index, o.reduction});
              }),
      of_rows("CrossEntropyWithOptions", [](const Tensor& x, const Tensor& labels,
                                            const CrossEntropyOptions& o) { return cross_entropy(x, labels, o); }),
      of_rows("CrossEntropyOfProbabilities",
              [](const Tensor& x, const Tensor&, const CrossEntropyOptions& o) {
                return cross_entropy(
                    x, softmax(x * x, x.shape().dim() == 1 ? 0 : 1),
                    {.weight = o.weight, .reduction = o.reduction, .label_smoothing = o.label_smoothing});
              }),
  };
}

}  // namespace lockstep::testing
