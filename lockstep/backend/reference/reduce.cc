#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/backend/formulas.h"
#include "lockstep/backend/reference/broadcast.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"
#include "lockstep/base/tree.h"

namespace lockstep::reference {
namespace {

class Reduce final : public ReduceKernels {
 public:
  void run(KernelContext&, const kernels::SumTo& call) override {
    if (call.x.dtype == DType::i64) {
      // f64 cannot represent every i64.
      auto* sums = call.y.as<std::int64_t>();
      std::fill_n(sums, call.y.numel(), 0);
      for_each_integer(call.x, call.y, [&](std::int64_t place, std::int64_t x) {
        sums[place] = integer_formula<BinaryOp::add>(sums[place], x);
      });
      return;
    }
    std::vector<double> sums(call.y.numel());
    Elements in(call.x);
    for (std::int64_t i = 0; i < call.x.numel(); ++i) sums[broadcast_source(call.y.shape, call.x.shape, i)] += in[i];
    store(sums, call.y);
  }

  void run(KernelContext&, const kernels::MaxTo& call) override {
    if (call.x.dtype == DType::i64) {
      auto* largest = call.y.as<std::int64_t>();
      std::fill_n(largest, call.y.numel(), std::numeric_limits<std::int64_t>::min());
      for_each_integer(call.x, call.y,
                       [&](std::int64_t place, std::int64_t x) { largest[place] = std::max(largest[place], x); });
      return;
    }
    std::vector<double> largest(call.y.numel(), -std::numeric_limits<double>::infinity());
    Elements in(call.x);
    for (std::int64_t i = 0; i < call.x.numel(); ++i) {
      double& best = largest[broadcast_source(call.y.shape, call.x.shape, i)];
      if (!(in[i] <= best) && !std::isnan(best)) best = in[i];
    }
    store(largest, call.y);
  }

  void run(KernelContext&, const kernels::Cumsum& call) override {
    Elements in(call.x), out(call.y);
    const std::int64_t n = call.x.shape[1], inner = call.x.shape[2];
    for (std::int64_t a = 0; a < call.x.shape[0]; ++a) {
      for (std::int64_t b = 0; b < inner; ++b) {
        double sum = 0;
        std::int64_t whole = 0;
        for (std::int64_t k = 0; k < n; ++k) {
          const std::int64_t i = (a * n + (call.reverse ? n - 1 - k : k)) * inner + b;
          if (call.x.dtype == DType::i64) {
            whole = integer_formula<BinaryOp::add>(whole, call.x.as<std::int64_t>()[i]);
            call.y.as<std::int64_t>()[i] = whole;
            continue;
          }
          sum += in[i];
          out.set(i, sum);
        }
      }
    }
  }

  // NaN counts as the largest, as in max pooling.
  void run(KernelContext&, const kernels::Argmax& call) override {
    Elements in(call.x), out(call.y);
    std::int64_t k = call.x.shape[1];
    for (std::int64_t row = 0; row < call.x.shape[0]; ++row) {
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < k; ++i) {
        if (call.x.dtype == DType::i64) {
          const auto* whole = call.x.as<std::int64_t>() + row * k;
          if (whole[i] > whole[best]) best = i;
          continue;
        }
        double a = in[row * k + i], b = in[row * k + best];
        if (a > b || (std::isnan(a) && !std::isnan(b))) best = i;
      }
      out.set(row, static_cast<double>(best));
    }
  }

  void run(KernelContext&, const kernels::Argsort& call) override {
    Elements in(call.x);
    const std::int64_t k = call.x.shape[1];
    for (std::int64_t row = 0; row < call.x.shape[0]; ++row) {
      auto* const first = call.y.as<std::int64_t>() + row * k;
      std::iota(first, first + k, 0);
      std::stable_sort(first, first + k, [&](std::int64_t i, std::int64_t j) {
        if (call.x.dtype == DType::i64) {
          const auto* whole = call.x.as<std::int64_t>() + row * k;
          return kernels::Argsort::precedes(call.descending, whole[i], whole[j]);
        }
        return kernels::Argsort::precedes(call.descending, in[row * k + i], in[row * k + j]);
      });
    }
  }

  // This kernel does not sum in double, because its contract fixes the order and rounding of its additions.
  void run(KernelContext&, const kernels::TreeSum& call) override {
    if (call.out.dtype == DType::f64) {
      tree_sum_as<double>(call.leaves, call.out);
    } else {
      tree_sum_as<float>(call.leaves, call.out);
    }
  }

  void run(KernelContext&, const kernels::SquaredNorm& call) override {
    double sum = 0;
    for (std::size_t k = 0; k < call.xs.size(); ++k) {
      if (call.omits(k)) continue;
      Elements in(call.xs[k]);
      for (std::int64_t i = 0; i < call.xs[k].numel(); ++i) sum += in[i] * in[i];
    }
    Elements(call.y).set(0, sum);
  }

 private:
  // Calls visit(place in y, element) for every element of x.
  template <typename Visit>
  static void for_each_integer(const View& x, const View& y, const Visit& visit) {
    for (std::int64_t i = 0; i < x.numel(); ++i) visit(broadcast_source(y.shape, x.shape, i), x.as<std::int64_t>()[i]);
  }

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
