#include "lockstep/backend/cpu/f16.h"

#include <tuple>
#include <utility>

#include "lockstep/backend/cpu/vectorize.h"

namespace lockstep::cpu {
namespace {

enum class Access { read, write };

// An operand of an f32 kernel: the view itself, or an f32 copy of an f16 view.
template <Access kAccess>
class Operand {
 public:
  explicit Operand(const View& view) : given_(view), used_(view) {}

  bool is_f16() const { return given_ && given_.dtype == DType::f16; }
  const View& view() const { return used_; }

  void before(const KernelContext& ctx) {
    if (!is_f16()) return;
    const std::int64_t n = given_.numel();
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
    used_.data = memory_.get();
    used_.dtype = DType::f32;
    if constexpr (kAccess == Access::read) {
      parallel_vector_loop(
          ctx, n, [x = given_.as<Float16>(), y = memory_.get()](std::int64_t i) { y[i] = static_cast<float>(x[i]); });
    }
  }
  void after(const KernelContext& ctx) const {
    if (kAccess == Access::read || !is_f16()) return;
    parallel_vector_loop(ctx, given_.numel(),
                         [x = memory_.get(), y = given_.as<Float16>()](std::int64_t i) { y[i] = Float16(x[i]); });
  }

 private:
  const View given_;
  View used_;
  std::unique_ptr<float[]> memory_;
};

Operand<Access::read> in(const View& view) { return Operand<Access::read>(view); }
Operand<Access::write> out(const View& view) { return Operand<Access::write>(view); }

// Calls kernel(views...) with f32 copies of f16 operands. Outputs are rounded after all inputs have been read, so an
// output may be an input.
template <typename... Operands, typename Kernel>
void in_f32(const KernelContext& ctx, std::tuple<Operands...> operands, const Kernel& kernel) {
  std::apply(
      [&](auto&... operand) {
        (operand.before(ctx), ...);
        kernel(operand.view()...);
        (operand.after(ctx), ...);
      },
      operands);
}

// The kernels of a family, and the ones that need more for f16.
template <typename Family>
class WithF16 : public Family {
 public:
  explicit WithF16(std::unique_ptr<Family> kernels) : kernels_(std::move(kernels)) {}

 protected:
  Family& f32() const { return *kernels_; }

 private:
  std::unique_ptr<Family> kernels_;
};

class Elementwise final : public WithF16<ElementwiseKernels> {
 public:
  using WithF16::WithF16;
  void unary(KernelContext& ctx, const Unary& op, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().unary(ctx, op, x, y); });
  }
  void unary_backward(KernelContext& ctx, const Unary& op, const View& saved, const View& dy, const View& dx) override {
    in_f32(ctx, std::tuple(in(saved), in(dy), out(dx)),
           [&](const View& saved, const View& dy, const View& dx) { f32().unary_backward(ctx, op, saved, dy, dx); });
  }
  void binary(KernelContext& ctx, BinaryOp op, const View& a, const View& b, const View& y) override {
    in_f32(ctx, std::tuple(in(a), in(b), out(y)),
           [&](const View& a, const View& b, const View& y) { f32().binary(ctx, op, a, b, y); });
  }
  void compare(KernelContext& ctx, CompareOp op, const View& a, const View& b, const View& y) override {
    in_f32(ctx, std::tuple(in(a), in(b)), [&](const View& a, const View& b) { f32().compare(ctx, op, a, b, y); });
  }
  void where(KernelContext& ctx, const View& condition, const View& a, const View& b, const View& y) override {
    f32().where(ctx, condition, a, b, y);
  }
  void affine(KernelContext& ctx, double scale, double shift, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)),
           [&](const View& x, const View& y) { f32().affine(ctx, scale, shift, x, y); });
  }
  void fill(KernelContext& ctx, double value, const View& y) override { f32().fill(ctx, value, y); }
  void arange(KernelContext& ctx, double start, double step, const View& y) override {
    f32().arange(ctx, start, step, y);
  }
};

class Copy final : public WithF16<CopyKernels> {
 public:
  using WithF16::WithF16;
  void copy(KernelContext& ctx, const View& x, const View& y) override {
    if (x.dtype == y.dtype) return f32().copy(ctx, x, y);
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().copy(ctx, x, y); });
  }
  void strided(KernelContext& ctx, const StridedCopy& copy, const View& x, const View& y) override {
    f32().strided(ctx, copy, x, y);
  }
};

class Index final : public WithF16<IndexKernels> {
 public:
  using WithF16::WithF16;
  void take(KernelContext& ctx, const View& x, const View& index, const View& y) override {
    f32().take(ctx, x, index, y);
  }
  void scatter_sum(KernelContext& ctx, const View& x, const View& index, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().scatter_sum(ctx, x, index, y); });
  }
};

class Reduce final : public WithF16<ReduceKernels> {
 public:
  using WithF16::WithF16;
  void sum_to(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().sum_to(ctx, x, y); });
  }
  void max_to(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().max_to(ctx, x, y); });
  }
  void cumsum(KernelContext& ctx, bool reverse, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().cumsum(ctx, reverse, x, y); });
  }
  void argmax(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x)), [&](const View& x) { f32().argmax(ctx, x, y); });
  }
  void argsort(KernelContext& ctx, bool descending, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x)), [&](const View& x) { f32().argsort(ctx, descending, x, y); });
  }
  void tree_sum(KernelContext& ctx, std::span<const View> leaves, const View& y) override {
    f32().tree_sum(ctx, leaves, y);
  }
  void squared_norm(KernelContext& ctx, std::span<const View> xs, std::span<const View> present,
                    const View& y) override {
    f32().squared_norm(ctx, xs, present, y);
  }
};

class Norm final : public WithF16<NormKernels> {
 public:
  using WithF16::WithF16;
  void stats(KernelContext& ctx, const View& x, const BatchNormStats& stats) override {
    in_f32(ctx, std::tuple(in(x)), [&](const View& x) { f32().stats(ctx, x, stats); });
  }
  void merge_stats(KernelContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& all) override {
    f32().merge_stats(ctx, parts, all);
  }
  void forward(KernelContext& ctx, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
               const View& beta, const View& residual, bool relu, const View& y) override {
    in_f32(ctx, std::tuple(in(x), in(residual), out(y)), [&](const View& x, const View& residual, const View& y) {
      f32().forward(ctx, x, stats, eps, gamma, beta, residual, relu, y);
    });
  }
  void backward_stats(KernelContext& ctx, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                      double eps, const View& dgamma, const View& dbeta) override {
    in_f32(ctx, std::tuple(in(dy), in(x), in(y)), [&](const View& dy, const View& x, const View& y) {
      f32().backward_stats(ctx, dy, x, y, stats, eps, dgamma, dbeta);
    });
  }
  void backward_data(KernelContext& ctx, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                     double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                     const View& dresidual) override {
    in_f32(ctx, std::tuple(in(dy), in(x), in(y), out(dx), out(dresidual)),
           [&](const View& dy, const View& x, const View& y, const View& dx, const View& dresidual) {
             f32().backward_data(ctx, dy, x, y, stats, eps, gamma, sum_g, sum_g_xhat, dx, dresidual);
           });
  }
  void commit(KernelContext& ctx, const BatchNormStats& stats, double momentum, const View& running_mean,
              const View& running_var, const View& batches) override {
    f32().commit(ctx, stats, momentum, running_mean, running_var, batches);
  }

  void rows_forward(KernelContext& ctx, const View& x, const View& weight, const View& bias, double eps,
                    const View& mean, const View& rstd, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)),
           [&](const View& x, const View& y) { f32().rows_forward(ctx, x, weight, bias, eps, mean, rstd, y); });
  }

  void rows_backward(KernelContext& ctx, const View& dy, const View& x, const View& mean, const View& rstd,
                     const View& weight, const View& dx, const View& dweight, const View& dbias) override {
    in_f32(ctx, std::tuple(in(dy), in(x), out(dx)), [&](const View& dy, const View& x, const View& dx) {
      f32().rows_backward(ctx, dy, x, mean, rstd, weight, dx, dweight, dbias);
    });
  }
};

class Pool final : public WithF16<PoolKernels> {
 public:
  using WithF16::WithF16;
  void max_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x, const View& y,
                   const View& where) override {
    in_f32(ctx, std::tuple(in(x), out(y)),
           [&](const View& x, const View& y) { f32().max_forward(ctx, options, x, y, where); });
  }
  void max_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& where,
                    const View& dx) override {
    in_f32(ctx, std::tuple(in(dy), out(dx)),
           [&](const View& dy, const View& dx) { f32().max_backward(ctx, options, dy, where, dx); });
  }
  void avg_forward(KernelContext& ctx, const Pool2dOptions& options, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)),
           [&](const View& x, const View& y) { f32().avg_forward(ctx, options, x, y); });
  }
  void avg_backward(KernelContext& ctx, const Pool2dOptions& options, const View& dy, const View& dx) override {
    in_f32(ctx, std::tuple(in(dy), out(dx)),
           [&](const View& dy, const View& dx) { f32().avg_backward(ctx, options, dy, dx); });
  }
  void global_avg_forward(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().global_avg_forward(ctx, x, y); });
  }
  void global_avg_backward(KernelContext& ctx, const View& dy, const View& dx) override {
    in_f32(ctx, std::tuple(in(dy), out(dx)),
           [&](const View& dy, const View& dx) { f32().global_avg_backward(ctx, dy, dx); });
  }
};

class Softmax final : public WithF16<SoftmaxKernels> {
 public:
  using WithF16::WithF16;
  void softmax(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().softmax(ctx, x, y); });
  }
  void softmax_backward(KernelContext& ctx, const View& y, const View& dy, const View& dx) override {
    in_f32(ctx, std::tuple(in(y), in(dy), out(dx)),
           [&](const View& y, const View& dy, const View& dx) { f32().softmax_backward(ctx, y, dy, dx); });
  }
  void log_softmax(KernelContext& ctx, const View& x, const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)), [&](const View& x, const View& y) { f32().log_softmax(ctx, x, y); });
  }
  void log_softmax_backward(KernelContext& ctx, const View& y, const View& dy, const View& dx) override {
    in_f32(ctx, std::tuple(in(y), in(dy), out(dx)),
           [&](const View& y, const View& dy, const View& dx) { f32().log_softmax_backward(ctx, y, dy, dx); });
  }
  void cross_entropy(KernelContext& ctx, const View& logits, const View& labels, const LabelRules& rules,
                     const View& sums) override {
    in_f32(ctx, std::tuple(in(logits)), [&](const View& x) { f32().cross_entropy(ctx, x, labels, rules, sums); });
  }
  void cross_entropy_mean(KernelContext& ctx, const View& sums, const View& loss) override {
    f32().cross_entropy_mean(ctx, sums, loss);
  }
  void cross_entropy_backward(KernelContext& ctx, const View& logits, const View& labels, const LabelRules& rules,
                              const View& sums, const View& dloss, const View& dlogits) override {
    in_f32(ctx, std::tuple(in(logits), out(dlogits)), [&](const View& x, const View& dx) {
      f32().cross_entropy_backward(ctx, x, labels, rules, sums, dloss, dx);
    });
  }
  void mse(KernelContext& ctx, const View& x, const View& target, const View& loss) override {
    in_f32(ctx, std::tuple(in(x), in(target)),
           [&](const View& x, const View& target) { f32().mse(ctx, x, target, loss); });
  }
  void mse_backward(KernelContext& ctx, const View& x, const View& target, const View& dloss, const View& dx) override {
    in_f32(ctx, std::tuple(in(x), in(target), out(dx)),
           [&](const View& x, const View& target, const View& dx) { f32().mse_backward(ctx, x, target, dloss, dx); });
  }
};

class Random final : public WithF16<RandomKernels> {
 public:
  using WithF16::WithF16;
  void uniform(KernelContext& ctx, RandomKey key, double low, double high, const View& y) override {
    in_f32(ctx, std::tuple(out(y)), [&](const View& y) { f32().uniform(ctx, key, low, high, y); });
  }
  void normal(KernelContext& ctx, RandomKey key, double mean, double stddev, const View& y) override {
    in_f32(ctx, std::tuple(out(y)), [&](const View& y) { f32().normal(ctx, key, mean, stddev, y); });
  }
  void dropout(KernelContext& ctx, RandomKey key, const View& key_at, double keep, const View& x,
               const View& y) override {
    in_f32(ctx, std::tuple(in(x), out(y)),
           [&](const View& x, const View& y) { f32().dropout(ctx, key, key_at, keep, x, y); });
  }
};

}  // namespace

std::unique_ptr<ElementwiseKernels> with_f16(std::unique_ptr<ElementwiseKernels> kernels) {
  return std::make_unique<Elementwise>(std::move(kernels));
}
std::unique_ptr<CopyKernels> with_f16(std::unique_ptr<CopyKernels> kernels) {
  return std::make_unique<Copy>(std::move(kernels));
}
std::unique_ptr<IndexKernels> with_f16(std::unique_ptr<IndexKernels> kernels) {
  return std::make_unique<Index>(std::move(kernels));
}
std::unique_ptr<ReduceKernels> with_f16(std::unique_ptr<ReduceKernels> kernels) {
  return std::make_unique<Reduce>(std::move(kernels));
}
std::unique_ptr<NormKernels> with_f16(std::unique_ptr<NormKernels> kernels) {
  return std::make_unique<Norm>(std::move(kernels));
}
std::unique_ptr<PoolKernels> with_f16(std::unique_ptr<PoolKernels> kernels) {
  return std::make_unique<Pool>(std::move(kernels));
}
std::unique_ptr<SoftmaxKernels> with_f16(std::unique_ptr<SoftmaxKernels> kernels) {
  return std::make_unique<Softmax>(std::move(kernels));
}
std::unique_ptr<RandomKernels> with_f16(std::unique_ptr<RandomKernels> kernels) {
  return std::make_unique<Random>(std::move(kernels));
}

}  // namespace lockstep::cpu
