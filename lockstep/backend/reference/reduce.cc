#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/backend/reference/broadcast.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"
#include "lockstep/base/tree.h"

namespace lockstep::reference {
namespace {

class Reduce final : public ReduceKernels {
 public:
  void sum_to(KernelContext&, const View& x, const View& y) override {
    std::vector<double> sums(y.numel());
    Elements in(x);
    for (std::int64_t i = 0; i < x.numel(); ++i) sums[broadcast_source(y.shape, x.shape, i)] += in[i];
    store(sums, y);
  }

  void max_to(KernelContext&, const View& x, const View& y) override {
    std::vector<double> largest(y.numel(), -std::numeric_limits<double>::infinity());
    Elements in(x);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      double& best = largest[broadcast_source(y.shape, x.shape, i)];
      if (!(in[i] <= best) && !std::isnan(best)) best = in[i];
    }
    store(largest, y);
  }

  void cumsum(KernelContext&, bool reverse, const View& x, const View& y) override {
    Elements in(x), out(y);
    const std::int64_t n = x.shape[1], inner = x.shape[2];
    for (std::int64_t a = 0; a < x.shape[0]; ++a) {
      for (std::int64_t b = 0; b < inner; ++b) {
        double sum = 0;
        for (std::int64_t k = 0; k < n; ++k) {
          const std::int64_t i = (a * n + (reverse ? n - 1 - k : k)) * inner + b;
          sum += in[i];
          out.set(i, sum);
        }
      }
    }
  }

  // NaN counts as the largest, as in max pooling.
  void argmax(KernelContext&, const View& x, const View& y) override {
    Elements in(x), out(y);
    std::int64_t k = x.shape[1];
    for (std::int64_t row = 0; row < x.shape[0]; ++row) {
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < k; ++i) {
        double a = in[row * k + i], b = in[row * k + best];
        if (a > b || (std::isnan(a) && !std::isnan(b))) best = i;
      }
      out.set(row, static_cast<double>(best));
    }
  }

  void argsort(KernelContext&, bool descending, const View& x, const View& y) override {
    Elements in(x);
    const std::int64_t k = x.shape[1];
    for (std::int64_t row = 0; row < x.shape[0]; ++row) {
      auto* const first = y.as<std::int64_t>() + row * k;
      std::iota(first, first + k, 0);
      std::stable_sort(first, first + k, [&](std::int64_t i, std::int64_t j) {
        return precedes(descending, in[row * k + i], in[row * k + j]);
      });
    }
  }

  // The only kernel that does not sum in double: the order and rounding of its additions are its contract.
  void tree_sum(KernelContext&, std::span<const View> leaves, const View& out) override {
    if (out.dtype == DType::f64) {
      tree_sum_as<double>(leaves, out);
    } else {
      tree_sum_as<float>(leaves, out);
    }
  }

  void squared_norm(KernelContext&, std::span<const View> xs, std::span<const View> present, const View& y) override {
    double sum = 0;
    for (std::size_t k = 0; k < xs.size(); ++k) {
      if (left_out(present, k)) continue;
      Elements in(xs[k]);
      for (std::int64_t i = 0; i < xs[k].numel(); ++i) sum += in[i] * in[i];
    }
    Elements(y).set(0, sum);
  }

 private:
  template <typename T>
  static void tree_sum_as(std::span<const View> leaves, const View& out) {
    T* sum = out.as<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      auto leaf = [&](std::size_t k) { return leaves[k] ? std::optional<T>(leaves[k].as<T>()[i]) : std::nullopt; };
      auto total = tree_fold(0, leaves.size(), leaf, [](T a, T b) { return std::optional<T>(a + b); });
      check(total.has_value(), "tree_sum: all {} leaves are missing", leaves.size());
      sum[i] = *total;
    }
  }
};

}  // namespace

std::unique_ptr<ReduceKernels> make_reduce() { return std::make_unique<Reduce>(); }

}  // namespace lockstep::reference
