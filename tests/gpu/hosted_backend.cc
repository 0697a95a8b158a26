#include "tests/gpu/hosted_backend.h"

#include <map>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/libraries.h"
#include "tests/gpu/gpu_testing.h"

namespace lockstep::testing {
namespace {

// One for all calls, as in a lane: library handles are expensive to make, and what a kernel leaves in the context's
// memory meets the next one. It is never destroyed, because the driver may be gone before it when the program ends.
GpuMemory& lane() {
  static GpuMemory& memory = *new GpuMemory;
  return memory;
}

// One call of a kernel: its tensors on the GPU, by their host addresses.
class Call {
 public:
  Call() : memory_(lane()) {
    static int calls = 0;
    aligned_ = ++calls % 2 == 1;
    memory_.release();
  }

  CudaContext& context() { return memory_.context(); }

  View operator()(const View& host) {
    if (!host) return {};
    View& device = views_[host.data];
    if (!device) {
      const std::size_t offset = aligned_ ? 0 : item_size(host.dtype);
      device = host;
      device.data = memory_.upload(host.data, host.bytes(), offset);
    }
    return device;
  }
  BatchNormStats operator()(const BatchNormStats& s) { return {s.n, (*this)(s.mean), (*this)(s.m2)}; }
  UpdateItem operator()(const UpdateItem& i) {
    return {(*this)(i.weight), (*this)(i.grad),    (*this)(i.state0),
            (*this)(i.state1), (*this)(i.present), (*this)(i.steps)};
  }
  template <typename Args>
  requires requires(Args args) { args.rate; }
  Args operator()(Args args) {
    args.rate = (*this)(args.rate);
    return args;
  }
  template <typename T>
  requires std::is_class_v<T> std::vector<T>
  operator()(std::span<const T> items) {
    std::vector<T> copies;
    for (const T& item : items) copies.push_back((*this)(item));
    return copies;
  }

  // Inputs are copied back, too, so tests notice if a kernel wrote to them.
  void finish() {
    memory_.synchronize();
    for (const auto& [host, device] : views_) memory_.download(host, device.data, device.bytes());
  }

 private:
  GpuMemory& memory_;
  bool aligned_;
  std::map<void*, View> views_;
};

// Calls a member of a family with every tensor argument, or argument made of tensors, on the GPU.
template <typename Family, typename... Parameters, typename... Arguments>
void call(Family& family, void (Family::*kernel)(KernelContext&, Parameters...), const Arguments&... arguments) {
  Call on_gpu;
  auto there = [&](const auto& argument) {
    if constexpr (requires { on_gpu(argument); }) {
      return on_gpu(argument);
    } else {
      return argument;
    }
  };
  (family.*kernel)(on_gpu.context(), there(arguments)...);
  on_gpu.finish();
}

class Elementwise final : public ElementwiseKernels {
 public:
  void unary(KernelContext&, const Unary& op, const View& x, const View& y) override {
    call(*own_, &ElementwiseKernels::unary, op, x, y);
  }
  void unary_backward(KernelContext&, const Unary& op, const View& saved, const View& dy, const View& dx) override {
    call(*own_, &ElementwiseKernels::unary_backward, op, saved, dy, dx);
  }
  void binary(KernelContext&, BinaryOp op, const View& a, const View& b, const View& out) override {
    call(*own_, &ElementwiseKernels::binary, op, a, b, out);
  }
  void affine(KernelContext&, double scale, double shift, const View& x, const View& y) override {
    call(*own_, &ElementwiseKernels::affine, scale, shift, x, y);
  }
  void compare(KernelContext&, CompareOp op, const View& a, const View& b, const View& out) override {
    call(*own_, &ElementwiseKernels::compare, op, a, b, out);
  }
  void where(KernelContext&, const View& condition, const View& a, const View& b, const View& out) override {
    call(*own_, &ElementwiseKernels::where, condition, a, b, out);
  }
  void fill(KernelContext&, double value, const View& y) override { call(*own_, &ElementwiseKernels::fill, value, y); }
  void arange(KernelContext&, double start, double step, const View& y) override {
    call(*own_, &ElementwiseKernels::arange, start, step, y);
  }

 private:
  std::unique_ptr<ElementwiseKernels> own_ = make_cuda_elementwise();
};

class Copy final : public CopyKernels {
 public:
  void copy(KernelContext&, const View& x, const View& y) override { call(*own_, &CopyKernels::copy, x, y); }
  void strided(KernelContext&, const StridedCopy& copy, const View& x, const View& y) override {
    call(*own_, &CopyKernels::strided, copy, x, y);
  }

 private:
  std::unique_ptr<CopyKernels> own_ = make_cuda_copy();
};

class Index final : public IndexKernels {
 public:
  void take(KernelContext&, const View& x, const View& index, const View& y) override {
    call(*own_, &IndexKernels::take, x, index, y);
  }
  void scatter_sum(KernelContext&, const View& x, const View& index, const View& y) override {
    call(*own_, &IndexKernels::scatter_sum, x, index, y);
  }

 private:
  std::unique_ptr<IndexKernels> own_ = make_cuda_index();
};

class Reduce final : public ReduceKernels {
 public:
  void sum_to(KernelContext&, const View& x, const View& y) override { call(*own_, &ReduceKernels::sum_to, x, y); }
  void max_to(KernelContext&, const View& x, const View& y) override { call(*own_, &ReduceKernels::max_to, x, y); }
  void cumsum(KernelContext&, bool reverse, const View& x, const View& y) override {
    call(*own_, &ReduceKernels::cumsum, reverse, x, y);
  }
  void argmax(KernelContext&, const View& x, const View& y) override { call(*own_, &ReduceKernels::argmax, x, y); }
  void argsort(KernelContext&, bool descending, const View& x, const View& y) override {
    call(*own_, &ReduceKernels::argsort, descending, x, y);
  }
  void tree_sum(KernelContext&, std::span<const View> leaves, const View& out) override {
    call(*own_, &ReduceKernels::tree_sum, leaves, out);
  }
  void squared_norm(KernelContext&, std::span<const View> xs, std::span<const View> present, const View& y) override {
    call(*own_, &ReduceKernels::squared_norm, xs, present, y);
  }

 private:
  std::unique_ptr<ReduceKernels> own_ = make_cuda_reduce();
};

class Norm final : public NormKernels {
 public:
  void stats(KernelContext&, const View& x, const BatchNormStats& stats) override {
    call(*own_, &NormKernels::stats, x, stats);
  }
  void merge_stats(KernelContext&, std::span<const BatchNormStats> parts, const BatchNormStats& out) override {
    call(*own_, &NormKernels::merge_stats, parts, out);
  }
  void forward(KernelContext&, const View& x, const BatchNormStats& stats, double eps, const View& gamma,
               const View& beta, const View& residual, bool relu, const View& y) override {
    call(*own_, &NormKernels::forward, x, stats, eps, gamma, beta, residual, relu, y);
  }
  void backward_stats(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                      double eps, const View& dgamma, const View& dbeta) override {
    call(*own_, &NormKernels::backward_stats, dy, x, y, stats, eps, dgamma, dbeta);
  }
  void backward_data(KernelContext&, const View& dy, const View& x, const View& y, const BatchNormStats& stats,
                     double eps, const View& gamma, const View& sum_g, const View& sum_g_xhat, const View& dx,
                     const View& dresidual) override {
    call(*own_, &NormKernels::backward_data, dy, x, y, stats, eps, gamma, sum_g, sum_g_xhat, dx, dresidual);
  }
  void commit(KernelContext&, const BatchNormStats& stats, double momentum, const View& running_mean,
              const View& running_var, const View& batches) override {
    call(*own_, &NormKernels::commit, stats, momentum, running_mean, running_var, batches);
  }
  void rows_forward(KernelContext&, const View& x, const View& weight, const View& bias, double eps, const View& mean,
                    const View& rstd, const View& y) override {
    call(*own_, &NormKernels::rows_forward, x, weight, bias, eps, mean, rstd, y);
  }
  void rows_backward(KernelContext&, const View& dy, const View& x, const View& mean, const View& rstd,
                     const View& weight, const View& dx, const View& dweight, const View& dbias) override {
    call(*own_, &NormKernels::rows_backward, dy, x, mean, rstd, weight, dx, dweight, dbias);
  }

 private:
  std::unique_ptr<NormKernels> own_ = make_cuda_norm();
};

class Pool final : public PoolKernels {
 public:
  void max_forward(KernelContext&, const Pool2dOptions& options, const View& x, const View& y,
                   const View& where) override {
    call(*own_, &PoolKernels::max_forward, options, x, y, where);
  }
  void max_backward(KernelContext&, const Pool2dOptions& options, const View& dy, const View& where,
                    const View& dx) override {
    call(*own_, &PoolKernels::max_backward, options, dy, where, dx);
  }
  void avg_forward(KernelContext&, const Pool2dOptions& options, const View& x, const View& y) override {
    call(*own_, &PoolKernels::avg_forward, options, x, y);
  }
  void avg_backward(KernelContext&, const Pool2dOptions& options, const View& dy, const View& dx) override {
    call(*own_, &PoolKernels::avg_backward, options, dy, dx);
  }
  void global_avg_forward(KernelContext&, const View& x, const View& y) override {
    call(*own_, &PoolKernels::global_avg_forward, x, y);
  }
  void global_avg_backward(KernelContext&, const View& dy, const View& dx) override {
    call(*own_, &PoolKernels::global_avg_backward, dy, dx);
  }

 private:
  std::unique_ptr<PoolKernels> own_ = make_cuda_pool();
};

class Softmax final : public SoftmaxKernels {
 public:
  void softmax(KernelContext&, const View& x, const View& y) override { call(*own_, &SoftmaxKernels::softmax, x, y); }
  void softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) override {
    call(*own_, &SoftmaxKernels::softmax_backward, y, dy, dx);
  }
  void log_softmax(KernelContext&, const View& x, const View& y) override {
    call(*own_, &SoftmaxKernels::log_softmax, x, y);
  }
  void log_softmax_backward(KernelContext&, const View& y, const View& dy, const View& dx) override {
    call(*own_, &SoftmaxKernels::log_softmax_backward, y, dy, dx);
  }
  void cross_entropy(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                     const View& sums) override {
    call(*own_, &SoftmaxKernels::cross_entropy, logits, labels, rules, sums);
  }
  void cross_entropy_mean(KernelContext&, const View& sums, const View& loss) override {
    call(*own_, &SoftmaxKernels::cross_entropy_mean, sums, loss);
  }
  void cross_entropy_backward(KernelContext&, const View& logits, const View& labels, const LabelRules& rules,
                              const View& sums, const View& dloss, const View& dlogits) override {
    call(*own_, &SoftmaxKernels::cross_entropy_backward, logits, labels, rules, sums, dloss, dlogits);
  }
  void mse(KernelContext&, const View& x, const View& target, const View& loss) override {
    call(*own_, &SoftmaxKernels::mse, x, target, loss);
  }
  void mse_backward(KernelContext&, const View& x, const View& target, const View& dloss, const View& dx) override {
    call(*own_, &SoftmaxKernels::mse_backward, x, target, dloss, dx);
  }

 private:
  std::unique_ptr<SoftmaxKernels> own_ = make_cuda_softmax();
};

class RandomNumbers final : public RandomKernels {
 public:
  void uniform(KernelContext&, RandomKey key, double low, double high, const View& y) override {
    call(*own_, &RandomKernels::uniform, key, low, high, y);
  }
  void normal(KernelContext&, RandomKey key, double mean, double stddev, const View& y) override {
    call(*own_, &RandomKernels::normal, key, mean, stddev, y);
  }
  void dropout(KernelContext&, RandomKey key, const View& key_at, double keep, const View& x, const View& y) override {
    call(*own_, &RandomKernels::dropout, key, key_at, keep, x, y);
  }

 private:
  std::unique_ptr<RandomKernels> own_ = make_cuda_random();
};

class Optimizer final : public OptimizerKernels {
 public:
  void sgd(KernelContext&, const SgdArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    call(*own_, &OptimizerKernels::sgd, args, items, scale);
  }
  void adam(KernelContext&, const AdamArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    call(*own_, &OptimizerKernels::adam, args, items, scale);
  }
  void clip_scale(KernelContext&, double max_norm, const View& squared_norm, const View& scale) override {
    call(*own_, &OptimizerKernels::clip_scale, max_norm, squared_norm, scale);
  }
  void loss_scale(KernelContext&, const LossScaleArgs& args, const View& squared_norm, const View& state,
                  const View& factor) override {
    call(*own_, &OptimizerKernels::loss_scale, args, squared_norm, state, factor);
  }

 private:
  std::unique_ptr<OptimizerKernels> own_ = make_cuda_optimizer();
};

class Matmul final : public MatmulKernels {
 public:
  void matmul(KernelContext&, const MatmulOptions& options, const View& a, const WeightView& b, const View& bias,
              const View& c) override {
    call(*own_, &MatmulKernels::matmul, options, a, b, bias, c);
  }
  void batched_matmul(KernelContext&, const MatmulOptions& options, const View& a, const View& b,
                      const View& c) override {
    call(*own_, &MatmulKernels::batched_matmul, options, a, b, c);
  }

 private:
  AlgorithmChoices choices_;
  std::unique_ptr<CopyKernels> copy_ = make_cuda_copy();
  std::unique_ptr<MatmulKernels> own_ = make_cublas_matmul({}, choices_, *copy_);
};

class Conv final : public ConvKernels {
 public:
  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    return own_->preferred_layout(dtype, channels);
  }
  void forward(KernelContext&, const Conv2dOptions& options, const View& x, const WeightView& w, const View& bias,
               const View& y) override {
    call(*own_, &ConvKernels::forward, options, x, w, bias, y);
  }
  void backward_data(KernelContext&, const Conv2dOptions& options, const View& dy, const WeightView& w,
                     const View& dx) override {
    call(*own_, &ConvKernels::backward_data, options, dy, w, dx);
  }
  void backward_weights(KernelContext&, const Conv2dOptions& options, const View& x, const View& dy, const View& dw,
                        const View& db) override {
    call(*own_, &ConvKernels::backward_weights, options, x, dy, dw, db);
  }

 private:
  AlgorithmChoices choices_;
  std::unique_ptr<CopyKernels> copy_ = make_cuda_copy();
  std::unique_ptr<ConvKernels> own_ = make_cudnn_conv({}, choices_, *copy_);
};

class HostedBackend final : public Backend {
 public:
  HostedBackend()
      : Backend({.elementwise = std::make_unique<Elementwise>(),
                 .copy = std::make_unique<Copy>(),
                 .index = std::make_unique<Index>(),
                 .reduce = std::make_unique<Reduce>(),
                 .matmul = std::make_unique<Matmul>(),
                 .conv = std::make_unique<Conv>(),
                 .norm = std::make_unique<Norm>(),
                 .pool = std::make_unique<Pool>(),
                 .softmax = std::make_unique<Softmax>(),
                 .random = std::make_unique<RandomNumbers>(),
                 .optimizer = std::make_unique<Optimizer>()}) {}
  std::string_view name() const override { return "hosted cuda"; }
  bool multiplies(DType) const override { return true; }
};

}  // namespace

std::unique_ptr<Backend> make_hosted_cuda_backend() { return has_gpu() ? std::make_unique<HostedBackend>() : nullptr; }

}  // namespace lockstep::testing
