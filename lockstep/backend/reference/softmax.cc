#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Elements [begin, end) of an array: one row of its last axis.
struct Row {
  std::int64_t begin;
  std::int64_t end;
};

template <typename Visit>
void for_each_row(const View& x, const Visit& visit) {
  std::int64_t k = x.shape[-1];
  for (std::int64_t begin = 0; begin < x.numel(); begin += k) visit(Row{begin, begin + k});
}

// Returns log(sum(exp(x))) over a row.
double log_sum_exp(const Elements& x, Row row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = row.begin; i < row.end; ++i) largest = std::max(largest, x[i]);
  double sum = 0;
  for (std::int64_t i = row.begin; i < row.end; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

// Returns class k of a sample's target distribution, q in softmax.h.
double target(std::int64_t k, std::int64_t label, double smoothing, std::int64_t classes) {
  return (k == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
}

// Returns the label of sample n. Throws if the label is neither ignored nor a class.
std::int64_t checked_label(const View& labels, std::int64_t n, std::int64_t classes, const LabelRules& rules) {
  std::int64_t label = labels.as<std::int64_t>()[n];
  check(rules.ignores(label) || (label >= 0 && label < classes),
        "cross_entropy: label {} of sample {} is outside [0, {})", label, rules.first_sample + n, classes);
  return label;
}

class Softmax final : public SoftmaxKernels {
 public:
  void run(KernelContext&, const kernels::Softmax& call) override {
    Elements in(call.x), out(call.y);
    for_each_row(call.x, [&](Row row) {
      double norm = log_sum_exp(in, row);
      for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, std::exp(in[i] - norm));
    });
  }

  void run(KernelContext&, const kernels::SoftmaxBackward& call) override {
    Elements out(call.y), grad(call.dy), result(call.dx);
    for_each_row(call.y, [&](Row row) {
      double dot = 0;
      for (std::int64_t i = row.begin; i < row.end; ++i) dot += out[i] * grad[i];
      for (std::int64_t i = row.begin; i < row.end; ++i) result.set(i, out[i] * (grad[i] - dot));
    });
  }

  void run(KernelContext&, const kernels::LogSoftmax& call) override {
    Elements in(call.x), out(call.y);
    for_each_row(call.x, [&](Row row) {
      double norm = log_sum_exp(in, row);
      for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, in[i] - norm);
    });
  }

  void run(KernelContext&, const kernels::LogSoftmaxBackward& call) override {
    Elements out(call.y), grad(call.dy), result(call.dx);
    for_each_row(call.y, [&](Row row) {
      double sum = 0;
      for (std::int64_t i = row.begin; i < row.end; ++i) sum += grad[i];
      for (std::int64_t i = row.begin; i < row.end; ++i) result.set(i, grad[i] - std::exp(out[i]) * sum);
    });
  }

  void run(KernelContext&, const kernels::CrossEntropy& call) override {
    Elements x(call.logits), out(call.sums);
    std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1], ignored = 0;
    double sum = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
      Row row{n * classes, (n + 1) * classes};
      std::int64_t label = checked_label(call.labels, n, classes, call.rules);
      if (call.rules.ignores(label)) {
        ++ignored;
        continue;
      }
      double norm = log_sum_exp(x, row);
      for (std::int64_t k = 0; k < classes; ++k) {
        double q = target(k, label, call.rules.smoothing, classes);
        if (q != 0) sum -= q * (x[row.begin + k] - norm);  // a logit of -inf adds nothing if q is 0
      }
    }
    const auto all = static_cast<double>(std::max<std::int64_t>(samples, 1));
    out.set(0, sum / all);
    out.set(1, static_cast<double>(ignored) / all);
    out.set(2, static_cast<double>(samples - ignored) / all);
  }

  void run(KernelContext&, const kernels::CrossEntropyMean& call) override {
    Elements in(call.sums);
    Elements(call.loss).set(0, in[0] * (1 + in[1] / in[2]));
  }

  void run(KernelContext&, const kernels::CrossEntropyBackward& call) override {
    Elements x(call.logits), all(call.sums), out(call.dlogits);
    std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1];
    double scale = Elements(call.dloss)[0] / static_cast<double>(samples) * (1 + all[1] / all[2]);
    for (std::int64_t n = 0; n < samples; ++n) {
      Row row{n * classes, (n + 1) * classes};
      std::int64_t label = checked_label(call.labels, n, classes, call.rules);
      if (call.rules.ignores(label)) {
        for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, 0);
        continue;
      }
      double norm = log_sum_exp(x, row);
      for (std::int64_t k = 0; k < classes; ++k) {
        double p = std::exp(x[row.begin + k] - norm);
        out.set(row.begin + k, scale * (p - target(k, label, call.rules.smoothing, classes)));
      }
    }
  }

  void run(KernelContext&, const kernels::Mse& call) override {
    Elements in(call.x), goal(call.target);
    double sum = 0;
    for (std::int64_t i = 0; i < call.x.numel(); ++i) sum += (in[i] - goal[i]) * (in[i] - goal[i]);
    Elements(call.loss).set(0, call.x.numel() > 0 ? sum / call.x.numel() : 0);
  }

  void run(KernelContext&, const kernels::MseBackward& call) override {
    Elements in(call.x), goal(call.target), out(call.dx);
    double scale = 2 * Elements(call.dloss)[0] / static_cast<double>(call.x.numel());
    for (std::int64_t i = 0; i < call.x.numel(); ++i) out.set(i, scale * (in[i] - goal[i]));
  }
};

}  // namespace

std::unique_ptr<SoftmaxKernels> make_softmax() { return std::make_unique<Softmax>(); }

}  // namespace lockstep::reference
