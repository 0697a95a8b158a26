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

// norm.h defines it for all back ends.
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

// dy after passing back through the ReLU with output y, if there is one.
double gradient(const View& dy, const View& y, std::int64_t i) {
  return !y || Elements(y)[i] > 0 ? Elements(dy)[i] : 0;
}

class Norm final : public NormKernels {
 public:
  void stats(KernelContext&, const View& x, const BatchNormStats& stats) override {
    Elements in(x);
    std::vector<double> means(x.shape[1]), squares(x.shape[1]);
    for_each_sample(x, [&](std::int64_t c, std::int64_t i) { means[c] += in[i] / stats.n; });
    for_each_sample(x, [&](std::int64_t c, std::int64_t i) { squares[c] += (in[i] - means[c]) * (in[i] - means[c]); });
    store(means, stats.mean);
    store(squares, stats.m2);
  }

  void merge_stats(KernelContext&, std::span<const BatchNormStats> parts, const BatchNormStats& out) override {
    Elements mean(out.mean), m2(out.m2);
    DType dtype = out.mean.dtype;
    for (std::int64_t c = 0; c < out.mean.numel(); ++c) {
      auto leaf = [&](std::size_t k) -> std::optional<Moments> {
        if (parts[k].n == 0) return std::nullopt;
        return Moments{parts[k].n, Elements(parts[k].mean)[c], Elements(parts[k].m2)[c]};
      };
      auto join = [&](const Moments& a, const Moments& b) { return std::optional(merge(a, b, dtype)); };
      Moments all = tree_fold(0, parts.size(), leaf, join).value_or(Moments{0, 0, 0});
      mean.set(c, all.mean);
      m2.set(c, all.m2);
    }
  }

  void forward(KernelContext&, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
               const View& beta, const View& residual, bool relu, const View& y) override {
    Elements in(x), mean(stats.mean), scale(gamma), shift(beta), shortcut(residual), out(y);
    for_each_sample(x, [&](std::int64_t c, std::int64_t i) {
      double value = scale[c] * (in[i] - mean[c]) * inverse_deviation(stats, eps, c) + shift[c];
      if (residual) value += shortcut[i];
      out.set(i, relu && value <= 0 ? 0 : value);
    });
  }

  void backward_stats(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                      double eps, const View& dgamma, const View& dbeta) override {
    Elements in(x), mean(stats.mean);
    std::vector<double> gammas(x.shape[1]), betas(x.shape[1]);
    for_each_sample(x, [&](std::int64_t c, std::int64_t i) {
      double g = gradient(dy, y, i);
      betas[c] += g;
      gammas[c] += g * (in[i] - mean[c]) * inverse_deviation(stats, eps, c);
    });
    store(gammas, dgamma);
    store(betas, dbeta);
  }

  void backward_data(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                     double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                     const View& dresidual) override {
    Elements in(x), mean(stats.mean), scale(gamma), sum(sum_g), sum_xhat(sum_g_xhat), out(dx);
    Elements out_residual(dresidual);
    for_each_sample(x, [&](std::int64_t c, std::int64_t i) {
      double g = gradient(dy, y, i);
      double inverse = inverse_deviation(stats, eps, c);
      double xhat = (in[i] - mean[c]) * inverse;
      out.set(i, scale[c] * inverse * (g - sum[c] / stats.n - xhat * sum_xhat[c] / stats.n));
      if (dresidual) out_residual.set(i, g);
    });
  }

  void commit(KernelContext&, const BatchNormStats& stats, double momentum, const View& running_mean,
              const View& running_var, const View& batches) override {
    ++*batches.as<std::int64_t>();
    if (stats.n == 0) return;
    auto move_to = [&](const Elements& running, std::int64_t c, double value) {
      running.set(c, running[c] + momentum * (value - running[c]));
    };
    for (std::int64_t c = 0; c < running_mean.numel(); ++c) {
      move_to(Elements(running_mean), c, Elements(stats.mean)[c]);
      if (stats.n > 1) move_to(Elements(running_var), c, Elements(stats.m2)[c] / (stats.n - 1));
    }
  }

  void rows_forward(KernelContext&, const View& x, const View& weight, const View& bias, double eps, const View& mean,
                    const View& rstd, const View& y) override {
    const std::int64_t rows = x.shape[0], k = x.shape[1];
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto in = [&, e = Elements(x)](std::int64_t i) { return e[row * k + i]; };
      double center = 0, variance = 0;
      for (std::int64_t i = 0; mean && i < k; ++i) center += in(i) / k;
      for (std::int64_t i = 0; i < k; ++i) variance += (in(i)-center) * (in(i)-center) / k;
      const double scale = 1 / std::sqrt(variance + eps);
      for (std::int64_t i = 0; i < k; ++i) {
        const double shift = bias ? Elements(bias)[i] : 0;
        Elements(y).set(row * k + i, (in(i)-center) * scale * (weight ? Elements(weight)[i] : 1) + shift);
      }
      if (mean) Elements(mean).set(row, center);
      Elements(rstd).set(row, scale);
    }
  }

  void rows_backward(KernelContext&, const View& dy, const View& x, const View& mean, const View& rstd,
                     const View& weight, const View& dx, const View& dweight, const View& dbias) override {
    const std::int64_t rows = x.shape[0], k = x.shape[1];
    std::vector<double> weights(k), biases(k);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double center = mean ? Elements(mean)[row] : 0, scale = Elements(rstd)[row];
      const auto xhat = [&](std::int64_t i) { return (Elements(x)[row * k + i] - center) * scale; };
      const auto gradient = [&](std::int64_t i) {
        return Elements(dy)[row * k + i] * (weight ? Elements(weight)[i] : 1);
      };
      double sum = 0, sum_xhat = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += mean ? gradient(i) : 0;
        sum_xhat += gradient(i) * xhat(i);
        weights[i] += Elements(dy)[row * k + i] * xhat(i);
        biases[i] += Elements(dy)[row * k + i];
      }
      for (std::int64_t i = 0; dx && i < k; ++i) {
        Elements(dx).set(row * k + i, scale * (gradient(i) - sum / k - xhat(i) * sum_xhat / k));
      }
    }
    if (dweight) store(weights, dweight);
    if (dbias) store(biases, dbias);
  }
};

}  // namespace

std::unique_ptr<NormKernels> make_norm() { return std::make_unique<Norm>(); }

}  // namespace lockstep::reference
