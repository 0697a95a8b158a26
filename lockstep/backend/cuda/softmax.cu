#include "lockstep/backend/softmax.h"

#include <cmath>
#include <limits>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/report.cuh"
#include "lockstep/backend/cuda/rows.cuh"

namespace lockstep {
inline namespace softmax_cu {

using namespace cuda;

// Values common to a row: softmax(x)[i] = exp(x[i] - max) / sum.
template <typename C>
struct RowStats {
  C max, sum;
};

template <typename T, int kGroup>
__device__ RowStats<Compute<T>> row_stats(const Group<kGroup>& group, const T* x, std::int64_t k) {
  using C = Compute<T>;
  C max = -std::numeric_limits<C>::infinity(), sum = 0;
  group.for_each(k, [&](std::int64_t i) { max = widened(x[i]) > max ? widened(x[i]) : max; });
  max = group.max(max);
  group.for_each(k, [&](std::int64_t i) { sum += std::exp(widened(x[i]) - max); });
  return {max, group.sum(sum)};
}

template <typename T, int kGroup>
__global__ void softmax_kernel(const T* x, T* y, std::int64_t rows, std::int64_t k, bool logarithm) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row >= rows) return;
  x += group.row * k;
  y += group.row * k;
  const RowStats<C> stats = row_stats(group, x, k);
  if (logarithm) {
    const C log_sum = std::log(stats.sum);
    group.for_each(k, [&](std::int64_t i) { y[i] = convert<T>((widened(x[i]) - stats.max) - log_sum); });
  } else {
    const C scale = 1 / stats.sum;
    group.for_each(k, [&](std::int64_t i) { y[i] = convert<T>(scale * std::exp(widened(x[i]) - stats.max)); });
  }
}

template <typename T, int kGroup>
__global__ void softmax_backward_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t k,
                                        bool logarithm) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row >= rows) return;
  y += group.row * k;
  dy += group.row * k;
  dx += group.row * k;
  C sum = 0;
  group.for_each(k, [&](std::int64_t i) { sum += logarithm ? widened(dy[i]) : widened(y[i]) * widened(dy[i]); });
  sum = group.sum(sum);
  group.for_each(k, [&](std::int64_t i) {
    const C p = widened(y[i]), g = widened(dy[i]);
    dx[i] = convert<T>(logarithm ? g - std::exp(p) * sum : p * (g - sum));
  });
}

// LabelRules for a kernel, which cannot call std::optional.
struct Rules {
  double smoothing;
  bool ignores_some;
  std::int64_t ignored, first_sample;

  explicit Rules(const LabelRules& rules)
      : smoothing(rules.smoothing), ignores_some(rules.ignored.has_value()), ignored(rules.ignored.value_or(0)),
        first_sample(rules.first_sample) {}
  __device__ bool ignores(std::int64_t label) const { return ignores_some && label == ignored; }
};

// The factor that turns the mean over all samples into the mean over the samples that count. It is exactly 1 if none is
// ignored.
template <typename C>
__device__ C counted_factor(const C* sums) {
  return 1 + sums[1] / sums[2];
}

// Computes the losses of all samples, which the last block adds up. `losses` [2, samples] has each sample's loss, and 1
// if the sample is ignored, else 0.
template <typename T, int kGroup>
__global__ void cross_entropy_kernel(const T* x, const std::int64_t* labels, std::int64_t samples, std::int64_t classes,
                                     Rules rules, double* losses, Compute<T>* sums, unsigned* counter,
                                     ErrorSlot* errors) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row < samples) {
    const T* row = x + group.row * classes;
    const std::int64_t label = labels[group.row];
    const bool valid = label >= 0 && label < classes, ignored = rules.ignores(label);
    const double smoothing = rules.smoothing;
    const RowStats<C> stats = row_stats(group, row, classes);
    C others = 0;
    if (smoothing != 0) {
      group.for_each(classes, [&](std::int64_t i) { others += widened(row[i]) - stats.max; });
      others = group.sum(others);
    }
    if (group.thread == 0) {
      if (!valid && !ignored) {
        report(errors, DataError::label_out_of_range, rules.first_sample + group.row, label, classes);
      }
      // sum_k q_k (x_k - max). Without smoothing, a logit of -inf adds nothing.
      double score = valid ? (1 - smoothing) * static_cast<double>(widened(row[label]) - stats.max) : 0;
      if (smoothing != 0) score += smoothing / static_cast<double>(classes) * static_cast<double>(others);
      losses[group.row] = ignored ? 0 : std::log(static_cast<double>(stats.sum)) - score;
      losses[samples + group.row] = ignored ? 1 : 0;
    }
  }
  if (!is_last_block(counter, gridDim.x)) return;
  double total = 0, ignored = 0;
  for (std::int64_t i = threadIdx.x; i < samples; i += blockDim.x) {
    total += losses[i];
    ignored += losses[samples + i];
  }
  total = block_sum(total);
  ignored = block_sum(ignored);
  if (threadIdx.x > 0) return;
  const double all = static_cast<double>(samples > 0 ? samples : 1);
  sums[0] = static_cast<C>(total / all);
  sums[1] = static_cast<C>(ignored / all);
  sums[2] = static_cast<C>((static_cast<double>(samples) - ignored) / all);
}

template <typename C>
__global__ void cross_entropy_mean_kernel(const C* sums, C* loss) {
  if (thread_number() == 0) *loss = sums[0] * counted_factor(sums);
}

template <typename T, int kGroup>
__global__ void cross_entropy_backward_kernel(const T* x, const std::int64_t* labels, std::int64_t samples,
                                              std::int64_t classes, Rules rules, const Compute<T>* sums,
                                              const Compute<T>* dloss, T* dlogits, ErrorSlot* errors) {
  using C = Compute<T>;
  const Group<kGroup> group;
  if (group.row >= samples) return;
  x += group.row * classes;
  dlogits += group.row * classes;
  const std::int64_t label = labels[group.row];
  if (rules.ignores(label)) {
    group.for_each(classes, [&](std::int64_t i) { dlogits[i] = convert<T>(C(0)); });
    return;
  }
  if (group.thread == 0 && (label < 0 || label >= classes)) {
    report(errors, DataError::label_out_of_range, rules.first_sample + group.row, label, classes);
  }
  const RowStats<C> stats = row_stats(group, x, classes);
  const C inverse = 1 / stats.sum, scale = *dloss / static_cast<C>(samples) * counted_factor(sums);
  const C others = static_cast<C>(rules.smoothing / static_cast<double>(classes));
  const C hit = static_cast<C>(1 - rules.smoothing);
  group.for_each(classes, [&](std::int64_t i) {
    const C p = inverse * std::exp(widened(x[i]) - stats.max), q = others + (i == label ? hit : C(0));
    dlogits[i] = convert<T>(scale * (p - q));
  });
}

constexpr std::int64_t kSumChunk = 8192;

template <typename T>
__global__ void mse_kernel(const T* x, const T* target, std::int64_t n, double* sums, Compute<T>* loss,
                           unsigned* counter) {
  const std::int64_t begin = blockIdx.x * kSumChunk, end = std::min(begin + kSumChunk, n);
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const auto difference = widened(x[i]) - widened(target[i]);
    sum += static_cast<double>(difference) * static_cast<double>(difference);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  if (!is_last_block(counter, gridDim.x)) return;
  double total = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) total += sums[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *loss = static_cast<Compute<T>>(n > 0 ? total / static_cast<double>(n) : 0);
}

template <typename T>
__global__ void mse_backward_kernel(const T* x, const T* target, std::int64_t n, const Compute<T>* dloss, T* dx) {
  using C = Compute<T>;
  const std::int64_t i = thread_number();
  if (i >= n) return;
  const C scale = static_cast<C>(2.0 * static_cast<double>(*dloss) / static_cast<double>(n));
  dx[i] = convert<T>(scale * (widened(x[i]) - widened(target[i])));
}

class CudaSoftmax final : public SoftmaxKernels {
 public:
  void run(KernelContext& ctx, const kernels::Softmax& call) override { forward(ctx, call.x, call.y, false); }
  void run(KernelContext& ctx, const kernels::LogSoftmax& call) override { forward(ctx, call.x, call.y, true); }
  void run(KernelContext& ctx, const kernels::SoftmaxBackward& call) override {
    backward(ctx, call.y, call.dy, call.dx, false);
  }
  void run(KernelContext& ctx, const kernels::LogSoftmaxBackward& call) override {
    backward(ctx, call.y, call.dy, call.dx, true);
  }

  void run(KernelContext& context, const kernels::CrossEntropy& call) override {
    CudaContext& ctx = cuda_context(context);
    const std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1];
    auto* losses = static_cast<double*>(ctx.device_scratch(static_cast<std::size_t>(2 * samples + 1) * sizeof(double)));
    visit_rows(call.logits.dtype, "cross_entropy", samples, classes, [&](auto zero, auto group, dim3 grid) {
      using T = decltype(zero);
      launch(cross_entropy_kernel<T, group>, grid, dim3(kThreads), 0, ctx.stream(), call.logits.as<T>(),
             call.labels.as<std::int64_t>(), samples, classes, Rules(call.rules), losses, call.sums.as<Compute<T>>(),
             ctx.counters(), ctx.errors());
    });
  }

  void run(KernelContext& ctx, const kernels::CrossEntropyMean& call) override {
    visit_floating(call.sums.dtype, "cross_entropy", [&](auto zero) {
      using C = Compute<decltype(zero)>;
      launch(cross_entropy_mean_kernel<C>, dim3(1), dim3(32), 0, cuda_context(ctx).stream(), call.sums.as<C>(),
             call.loss.as<C>());
    });
  }

  void run(KernelContext& context, const kernels::CrossEntropyBackward& call) override {
    if (call.logits.numel() == 0) return;
    CudaContext& ctx = cuda_context(context);
    const std::int64_t samples = call.logits.shape[0], classes = call.logits.shape[1];
    visit_rows(call.logits.dtype, "cross_entropy", samples, classes, [&](auto zero, auto group, dim3 grid) {
      using T = decltype(zero);
      launch(cross_entropy_backward_kernel<T, group>, grid, dim3(kThreads), 0, ctx.stream(), call.logits.as<T>(),
             call.labels.as<std::int64_t>(), samples, classes, Rules(call.rules), call.sums.as<Compute<T>>(),
             call.dloss.as<Compute<T>>(), call.dlogits.as<T>(), ctx.errors());
    });
  }

  void run(KernelContext& context, const kernels::Mse& call) override {
    CudaContext& ctx = cuda_context(context);
    const std::int64_t n = call.x.numel(), blocks = std::max<std::int64_t>(ceil_div(n, kSumChunk), 1);
    auto* sums = static_cast<double*>(ctx.device_scratch(static_cast<std::size_t>(blocks) * sizeof(double)));
    visit_floating(call.x.dtype, "mse", [&](auto zero) {
      using T = decltype(zero);
      launch(mse_kernel<T>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, ctx.stream(), call.x.as<T>(),
             call.target.as<T>(), n, sums, call.loss.as<Compute<T>>(), ctx.counters());
    });
  }

  void run(KernelContext& ctx, const kernels::MseBackward& call) override {
    const std::int64_t n = call.x.numel();
    if (n == 0) return;
    visit_floating(call.x.dtype, "mse", [&](auto zero) {
      using T = decltype(zero);
      launch(mse_backward_kernel<T>, blocks_for(n), dim3(kThreads), 0, cuda_context(ctx).stream(), call.x.as<T>(),
             call.target.as<T>(), n, call.dloss.as<Compute<T>>(), call.dx.as<T>());
    });
  }

 private:
  static void forward(KernelContext& ctx, const View& x, const View& y, bool logarithm) {
    if (x.numel() == 0) return;
    const std::int64_t k = x.shape[-1], rows = x.numel() / k;
    visit_rows(x.dtype, "softmax", rows, k, [&](auto zero, auto group, dim3 grid) {
      using T = decltype(zero);
      launch(softmax_kernel<T, group>, grid, dim3(kThreads), 0, cuda_context(ctx).stream(), x.as<T>(), y.as<T>(), rows,
             k, logarithm);
    });
  }

  static void backward(KernelContext& ctx, const View& y, const View& dy, const View& dx, bool logarithm) {
    if (y.numel() == 0) return;
    const std::int64_t k = y.shape[-1], rows = y.numel() / k;
    visit_rows(y.dtype, "softmax", rows, k, [&](auto zero, auto group, dim3 grid) {
      using T = decltype(zero);
      launch(softmax_backward_kernel<T, group>, grid, dim3(kThreads), 0, cuda_context(ctx).stream(), y.as<T>(),
             dy.as<T>(), dx.as<T>(), rows, k, logarithm);
    });
  }
};

}  // namespace softmax_cu

std::unique_ptr<SoftmaxKernels> make_cuda_softmax() { return std::make_unique<CudaSoftmax>(); }

}  // namespace lockstep
