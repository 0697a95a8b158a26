#include <cmath>
#include <vector>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"
#include "lockstep/base/tree.h"

namespace lockstep::reference {
namespace {

struct Moments {
  std::int64_t n;
  double mean;
  double m2;
};

// norm.h defines this formula for all back ends.
Moments merge(const Moments& a, const Moments& b, DType dtype) {
  std::int64_t n = a.n + b.n;
  double part = static_cast<double>(b.n) / n;
  double d = b.mean - a.mean;
  double mean = a.mean + d * part;
  double m2 = a.m2 + b.m2 + d * d * static_cast<double>(a.n) * part;
  return {n, rounded(mean, dtype), rounded(m2, dtype)};
}

// Calls visit(channel, place in x) for every element of x.
template <typename Visit>
void for_each_sample(const View& x, const Visit& visit) {
  for_each4(x.shape, [&, in = Elements(x)](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    visit(c, in.at(n, c, h, w));
  });
}

double inverse_deviation(const BatchNormStats& stats, double eps, std::int64_t c) {
  return 1 / std::sqrt(Elements(stats.m2)[c] / stats.n + eps);
}

// Returns dy[i] after the backward pass of the ReLU with output y, if there is one.
double gradient(const View& dy, const View& y, std::int64_t i) {
  return !y || Elements(y)[i] > 0 ? Elements(dy)[i] : 0;
}

class Norm final : public NormKernels {
 public:
  void run(KernelContext&, const kernels::NormStats& call) override {
    Elements in(call.x);
    std::vector<double> means(call.x.shape[1]), squares(call.x.shape[1]);
    for_each_sample(call.x, [&](std::int64_t c, std::int64_t i) { means[c] += in[i] / call.stats.n; });
    for_each_sample(call.x,
                    [&](std::int64_t c, std::int64_t i) { squares[c] += (in[i] - means[c]) * (in[i] - means[c]); });
    store(means, call.stats.mean);
    store(squares, call.stats.m2);
  }

  void run(KernelContext&, const kernels::MergeNormStats& call) override {
    Elements mean(call.merged.mean), m2(call.merged.m2);
    DType dtype = call.merged.mean.dtype;
    for (std::int64_t c = 0; c < call.merged.mean.numel(); ++c) {
      auto leaf = [&](std::size_t k) -> std::optional<Moments> {
        if (call.parts[k].n == 0) return std::nullopt;
        return Moments{call.parts[k].n, Elements(call.parts[k].mean)[c], Elements(call.parts[k].m2)[c]};
      };
      auto join = [&](const Moments& a, const Moments& b) { return std::optional(merge(a, b, dtype)); };
      Moments all = tree_fold(0, call.parts.size(), leaf, join).value_or(Moments{0, 0, 0});
      mean.set(c, all.mean);
      m2.set(c, all.m2);
    }
  }

  void run(KernelContext&, const kernels::Norm& call) override {
    Elements in(call.x), mean(call.stats.mean), scale(call.gamma), shift(call.beta), shortcut(call.residual),
        out(call.y);
    for_each_sample(call.x, [&](std::int64_t c, std::int64_t i) {
      double value = scale[c] * (in[i] - mean[c]) * inverse_deviation(call.stats, call.eps, c) + shift[c];
      if (call.residual) value += shortcut[i];
      out.set(i, call.relu && value <= 0 ? 0 : value);
    });
  }

  void run(KernelContext&, const kernels::NormBackwardStats& call) override {
    Elements in(call.x), mean(call.stats.mean);
    std::vector<double> gammas(call.x.shape[1]), betas(call.x.shape[1]);
    for_each_sample(call.x, [&](std::int64_t c, std::int64_t i) {
      double g = gradient(call.dy, call.y, i);
      betas[c] += g;
      gammas[c] += g * (in[i] - mean[c]) * inverse_deviation(call.stats, call.eps, c);
    });
    store(gammas, call.dgamma);
    store(betas, call.dbeta);
  }

  void run(KernelContext&, const kernels::NormBackwardData& call) override {
    Elements in(call.x), mean(call.stats.mean), scale(call.gamma), sum(call.sum_g), sum_xhat(call.sum_g_xhat),
        out(call.dx);
    Elements out_residual(call.dresidual);
    for_each_sample(call.x, [&](std::int64_t c, std::int64_t i) {
      double g = gradient(call.dy, call.y, i);
      double inverse = inverse_deviation(call.stats, call.eps, c);
      double xhat = (in[i] - mean[c]) * inverse;
      out.set(i, scale[c] * inverse * (g - sum[c] / call.stats.n - xhat * sum_xhat[c] / call.stats.n));
      if (call.dresidual) out_residual.set(i, g);
    });
  }

  void run(KernelContext&, const kernels::CommitNormStats& call) override {
    ++*call.batches.as<std::int64_t>();
    if (call.stats.n == 0) return;
    const double momentum =
        call.momentum < 0 ? 1 / static_cast<double>(*call.batches.as<std::int64_t>()) : call.momentum;
    auto move_to = [&](const Elements& running, std::int64_t c, double value) {
      running.set(c, running[c] + momentum * (value - running[c]));
    };
    for (std::int64_t c = 0; c < call.running_mean.numel(); ++c) {
      move_to(Elements(call.running_mean), c, Elements(call.stats.mean)[c]);
      if (call.stats.n > 1) move_to(Elements(call.running_var), c, Elements(call.stats.m2)[c] / (call.stats.n - 1));
    }
  }

  void run(KernelContext&, const kernels::NormRows& call) override {
    const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto in = [&, e = Elements(call.x)](std::int64_t i) { return e[row * k + i]; };
      double center = 0, variance = 0;
      for (std::int64_t i = 0; call.mean && i < k; ++i) center += in(i) / k;
      for (std::int64_t i = 0; i < k; ++i) variance += (in(i)-center) * (in(i)-center) / k;
      const double scale = 1 / std::sqrt(variance + call.eps);
      for (std::int64_t i = 0; i < k; ++i) {
        const double shift = call.bias ? Elements(call.bias)[i] : 0;
        Elements(call.y).set(row * k + i,
                             (in(i)-center) * scale * (call.weight ? Elements(call.weight)[i] : 1) + shift);
      }
      if (call.mean) Elements(call.mean).set(row, center);
      Elements(call.rstd).set(row, scale);
    }
  }

  void run(KernelContext&, const kernels::NormRowsBackward& call) override {
    const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
    std::vector<double> weights(k), biases(k);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double center = call.mean ? Elements(call.mean)[row] : 0, scale = Elements(call.rstd)[row];
      const auto xhat = [&](std::int64_t i) { return (Elements(call.x)[row * k + i] - center) * scale; };
      const auto gradient = [&](std::int64_t i) {
        return Elements(call.dy)[row * k + i] * (call.weight ? Elements(call.weight)[i] : 1);
      };
      double sum = 0, sum_xhat = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += call.mean ? gradient(i) : 0;
        sum_xhat += gradient(i) * xhat(i);
        weights[i] += Elements(call.dy)[row * k + i] * xhat(i);
        biases[i] += Elements(call.dy)[row * k + i];
      }
      for (std::int64_t i = 0; call.dx && i < k; ++i) {
        Elements(call.dx).set(row * k + i, scale * (gradient(i) - sum / k - xhat(i) * sum_xhat / k));
      }
    }
    if (call.dweight) store(weights, call.dweight);
    if (call.dbias) store(biases, call.dbias);
  }
};

}  // namespace

std::unique_ptr<NormKernels> make_norm() { return std::make_unique<Norm>(); }

}  // namespace lockstep::reference
