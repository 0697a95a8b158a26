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

// log(sum(exp(x))) over a row.
double log_sum_exp(const Elements& x, Row row) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = row.begin; i < row.end; ++i) largest = std::max(largest, x[i]);
  double sum = 0;
  for (std::int64_t i = row.begin; i < row.end; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

// The target distribution of a sample, q in softmax.h.
double target(std::int64_t k, std::int64_t label, double smoothing, std::int64_t classes) {
  return (k == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
}

// The label of sample n; throws if it is neither ignored nor a class.
std::int64_t checked_label(const View& labels, std::int64_t n, std::int64_t classes, const LabelRules& rules) {
  std::int64_t label = labels.as<std::int64_t>()[n];
  check(rules.ignores(label) || (label >= 0 && label < classes),
        "cross_entropy: label {} of sample {} is outside [0, {})", label, rules.first_sample + n, classes);
  return label;
}

class Softmax final : public SoftmaxKernels {
 public:
  void softmax(KernelContext&, const View& x, const View& y) override {
    Elements in(x), out(y);
    for_each_row(x, [&](Row row) {
      double norm = log_sum_exp(in, row);
      for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, std::exp(in[i] - norm));
    });
  }

  void softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) override {
    Elements out(y), grad(dy), result(dx);
    for_each_row(y, [&](Row row) {
      double dot = 0;
      for (std::int64_t i = row.begin; i < row.end; ++i) dot += out[i] * grad[i];
      for (std::int64_t i = row.begin; i < row.end; ++i) result.set(i, out[i] * (grad[i] - dot));
    });
  }

  void log_softmax(KernelContext&, const View& x, const View& y) override {
    Elements in(x), out(y);
    for_each_row(x, [&](Row row) {
      double norm = log_sum_exp(in, row);
      for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, in[i] - norm);
    });
  }

  void log_softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) override {
    Elements out(y), grad(dy), result(dx);
    for_each_row(y, [&](Row row) {
      double sum = 0;
      for (std::int64_t i = row.begin; i < row.end; ++i) sum += grad[i];
      for (std::int64_t i = row.begin; i < row.end; ++i) result.set(i, grad[i] - std::exp(out[i]) * sum);
    });
  }

  void cross_entropy(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                     const View& sums) override {
    Elements x(logits), out(sums);
    std::int64_t samples = logits.shape[0], classes = logits.shape[1], ignored = 0;
    double sum = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
      Row row{n * classes, (n + 1) * classes};
      std::int64_t label = checked_label(labels, n, classes, rules);
      if (rules.ignores(label)) {
        ++ignored;
        continue;
      }
      double norm = log_sum_exp(x, row);
      for (std::int64_t k = 0; k < classes; ++k) {
        double q = target(k, label, rules.smoothing, classes);
        if (q != 0) sum -= q * (x[row.begin + k] - norm);  // a logit of -inf adds nothing if q is 0
      }
    }
    const auto all = static_cast<double>(std::max<std::int64_t>(samples, 1));
    out.set(0, sum / all);
    out.set(1, static_cast<double>(ignored) / all);
    out.set(2, static_cast<double>(samples - ignored) / all);
  }

  void cross_entropy_mean(KernelContext&, const View& sums, const View& loss) override {
    Elements in(sums);
    Elements(loss).set(0, in[0] * (1 + in[1] / in[2]));
  }

  void cross_entropy_backward(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                              const View& sums, const View& dloss, const View& dlogits) override {
    Elements x(logits), all(sums), out(dlogits);
    std::int64_t samples = logits.shape[0], classes = logits.shape[1];
    double scale = Elements(dloss)[0] / static_cast<double>(samples) * (1 + all[1] / all[2]);
    for (std::int64_t n = 0; n < samples; ++n) {
      Row row{n * classes, (n + 1) * classes};
      std::int64_t label = checked_label(labels, n, classes, rules);
      if (rules.ignores(label)) {
        for (std::int64_t i = row.begin; i < row.end; ++i) out.set(i, 0);
        continue;
      }
      double norm = log_sum_exp(x, row);
      for (std::int64_t k = 0; k < classes; ++k) {
        double p = std::exp(x[row.begin + k] - norm);
        out.set(row.begin + k, scale * (p - target(k, label, rules.smoothing, classes)));
      }
    }
  }

  void mse(KernelContext&, const View& x, const View& target, const View& loss) override {
    Elements in(x), goal(target);
    double sum = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) sum += (in[i] - goal[i]) * (in[i] - goal[i]);
    Elements(loss).set(0, x.numel() > 0 ? sum / x.numel() : 0);
  }

  void mse_backward(KernelContext&, const View& x, const View& target, const View& dloss, const View& dx) override {
    Elements in(x), goal(target), out(dx);
    double scale = 2 * Elements(dloss)[0] / static_cast<double>(x.numel());
    for (std::int64_t i = 0; i < x.numel(); ++i) out.set(i, scale * (in[i] - goal[i]));
  }
};

}  // namespace

std::unique_ptr<SoftmaxKernels> make_softmax() { return std::make_unique<Softmax>(); }

}  // namespace lockstep::reference
