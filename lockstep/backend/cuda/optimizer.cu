#include "lockstep/backend/optimizer.h"

#include <cmath>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/tensor_table.h"

namespace lockstep {
namespace {

using namespace cuda;

// One parameter. Absent states are null.
template <typename T>
struct Parameter {
  T* weight;
  const T* grad;
  T *state0, *state1;
  const std::uint8_t* present;
  std::int64_t* steps;  // Adam's
  std::int64_t n;
  bool aligned;
};

// Calls update(weight, grad, state0, state1) for the elements of a block's chunk, by vectors, and stores the results
// except the gradient. Absent states stay 0.
template <typename T, typename Update>
__device__ void update_chunk(const TensorTable<Parameter<T>>& table, const Update& update) {
  constexpr int kWidth = kVector<T>;
  const TableChunk chunk(table, blockIdx.x);
  const Parameter<T>& p = table.tensors[chunk.tensor];
  if (p.present && *p.present == 0) return;
  const std::int64_t stride = std::int64_t{blockDim.x} * kWidth;
  for (std::int64_t i = chunk.begin + std::int64_t{threadIdx.x} * kWidth; i < chunk.end; i += stride) {
    if (i + kWidth <= chunk.end) {
      Vector<T, kWidth> w = load<kWidth>(p.weight + i, p.aligned), m{}, v{};
      const Vector<T, kWidth> g = load<kWidth>(p.grad + i, p.aligned);
      if (p.state0) m = load<kWidth>(p.state0 + i, p.aligned);
      if (p.state1) v = load<kWidth>(p.state1 + i, p.aligned);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) update(w.at[k], g.at[k], m.at[k], v.at[k]);
      store(p.weight + i, w, p.aligned);
      if (p.state0) store(p.state0 + i, m, p.aligned);
      if (p.state1) store(p.state1 + i, v, p.aligned);
    } else {
      for (std::int64_t k = i; k < chunk.end; ++k) {
        T m = p.state0 ? p.state0[k] : T(0), v = p.state1 ? p.state1[k] : T(0);
        update(p.weight[k], p.grad[k], m, v);
        if (p.state0) p.state0[k] = m;
        if (p.state1) p.state1[k] = v;
      }
    }
  }
}

// The factor of clipping and loss scaling, which a kernel before this one may have computed.
template <typename T>
__device__ T factor(const double* scale) {
  return scale ? static_cast<T>(*scale) : T(1);
}

template <typename T>
__global__ void sgd_kernel(const __grid_constant__ TensorTable<Parameter<T>> table, T lr, T momentum, T decay,
                           bool nesterov, const double* scale, const double* rate) {
  const T by = factor<T>(scale);
  if (by < 0) return;
  if (rate) lr = static_cast<T>(*rate);
  // Without a state, the momentum is 0 and m becomes the gradient.
  update_chunk(table, [=](T& w, T grad, T& m, T&) {
    const T g = by * grad + decay * w;
    m = momentum * m + g;
    w -= lr * (nesterov ? g + momentum * m : m);
  });
}

template <typename T>
struct AdamFactors {
  T keep1, take1, keep2, take2, eps, decay;
  double beta1, beta2, lr;
  double shrink_by;  // decoupled decay, times the learning rate
};

// Only reads the numbers of steps, because many blocks share one: count_kernel follows.
template <typename T>
__global__ void adam_kernel(const __grid_constant__ TensorTable<Parameter<T>> table, AdamFactors<T> f,
                            const double* scale, const double* rate_in_memory) {
  const T by = factor<T>(scale);
  if (by < 0) return;
  const double lr = rate_in_memory ? *rate_in_memory : f.lr;
  const std::int64_t step = *table.tensors[TableChunk(table, blockIdx.x).tensor].steps + 1;
  const BiasCorrections corrections = bias_corrections(f.beta1, f.beta2, step);
  const T rate = static_cast<T>(lr / corrections.first), correction2 = static_cast<T>(1 / corrections.second),
          shrink = static_cast<T>(1 - lr * f.shrink_by);
  update_chunk(table, [=](T& w, T grad, T& m, T& v) {
    const T g = by * grad + f.decay * w;
    m = f.keep1 * m + f.take1 * g;
    v = f.keep2 * v + f.take2 * g * g;
    w = shrink * w - rate * m / (std::sqrt(v * correction2) + f.eps);
  });
}

// One block; thread i counts the step of tensor i.
template <typename T>
__global__ void count_kernel(const __grid_constant__ TensorTable<Parameter<T>> table) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= table.count) return;
  const Parameter<T>& p = table.tensors[i];
  if (p.present == nullptr || *p.present != 0) ++*p.steps;
}

__global__ void clip_scale_kernel(double max_norm, const double* squared_norm, double* scale) {
  const double factor = max_norm / (std::sqrt(*squared_norm) + 1e-6);
  *scale = factor > 1 ? 1 : factor;  // NaN stays NaN
}

__global__ void loss_scale_kernel(LossScaleArgs args, const double* squared_norm, float* state, double* factor) {
  const double squared = *squared_norm, scale = state[0], good = state[1] + 1;
  if (squared - squared == 0) {  // finite
    const double clipped = args.max_norm > 0 ? args.max_norm / (std::sqrt(squared) / scale + 1e-6) : 1;
    *factor = (clipped > 1 ? 1 : clipped) / scale;
    const bool grows = good >= static_cast<double>(args.growth_interval);
    if (grows && scale < LossScaleArgs::kMost) state[0] = static_cast<float>(scale * 2);
    state[1] = static_cast<float>(grows ? 0 : good);
  } else {
    *factor = -1;
    if (scale > LossScaleArgs::kLeast) state[0] = static_cast<float>(scale / 2);
    state[1] = 0;
  }
}

// Launches `kernel` on all items of one dtype, as many at a time as fit in a table.
template <typename T, typename Launch>
void for_each_table(std::span<const UpdateItem> items, const Launch& launch_table) {
  TensorTable<Parameter<T>> table;
  for (const UpdateItem& item : items) {
    if (item.weight.dtype != dtype_of<T>) continue;
    if (table.full()) {
      launch_table(table);
      table = {};
    }
    table.add({item.weight.as<T>(), item.grad.as<T>(), item.state0 ? item.state0.as<T>() : nullptr,
               item.state1 ? item.state1.as<T>() : nullptr, item.present ? item.present.as<std::uint8_t>() : nullptr,
               item.steps ? item.steps.as<std::int64_t>() : nullptr, item.weight.numel(),
               all_aligned(item.weight.data, item.grad.data, item.state0.data, item.state1.data)});
  }
  if (table.count > 0) launch_table(table);
}

class CudaOptimizer final : public OptimizerKernels {
 public:
  void sgd(KernelContext& ctx, const SgdArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    sgd_as<float>(ctx, args, items, scale);
    sgd_as<double>(ctx, args, items, scale);
  }

  void adam(KernelContext& ctx, const AdamArgs& args, std::span<const UpdateItem> items, const View& scale) override {
    adam_as<float>(ctx, args, items, scale);
    adam_as<double>(ctx, args, items, scale);
  }

  void clip_scale(KernelContext& ctx, double max_norm, const View& squared_norm, const View& scale) override {
    launch(clip_scale_kernel, dim3(1), dim3(1), 0, cuda_context(ctx).stream(), max_norm, squared_norm.as<double>(),
           scale.as<double>());
  }

  void loss_scale(KernelContext& ctx, const LossScaleArgs& args, const View& squared_norm, const View& state,
                  const View& factor) override {
    launch(loss_scale_kernel, dim3(1), dim3(1), 0, cuda_context(ctx).stream(), args, squared_norm.as<double>(),
           state.as<float>(), factor.as<double>());
  }

 private:
  static const double* data(const View& scale) { return scale ? scale.as<double>() : nullptr; }

  template <typename T>
  static void sgd_as(KernelContext& ctx, const SgdArgs& args, std::span<const UpdateItem> items, const View& scale) {
    for_each_table<T>(items, [&](const TensorTable<Parameter<T>>& table) {
      if (table.blocks() == 0) return;
      launch(sgd_kernel<T>, dim3(table.blocks()), dim3(kThreads), 0, cuda_context(ctx).stream(), table,
             static_cast<T>(args.lr), static_cast<T>(args.momentum), static_cast<T>(args.weight_decay), args.nesterov,
             data(scale), data(args.rate));
    });
  }

  template <typename T>
  static void adam_as(KernelContext& ctx, const AdamArgs& args, std::span<const UpdateItem> items, const View& scale) {
    AdamFactors<T> f;
    f.keep1 = static_cast<T>(args.beta1), f.take1 = static_cast<T>(1 - args.beta1);
    f.keep2 = static_cast<T>(args.beta2), f.take2 = static_cast<T>(1 - args.beta2);
    f.eps = static_cast<T>(args.eps);
    // Decay acts through the gradient or directly, never both.
    f.decay = static_cast<T>(args.decoupled ? 0 : args.weight_decay);
    f.shrink_by = args.decoupled ? args.weight_decay : 0;
    f.beta1 = args.beta1, f.beta2 = args.beta2, f.lr = args.lr;
    for_each_table<T>(items, [&](const TensorTable<Parameter<T>>& table) {
      if (table.blocks() > 0) {
        launch(adam_kernel<T>, dim3(table.blocks()), dim3(kThreads), 0, cuda_context(ctx).stream(), table, f,
               data(scale), data(args.rate));
      }
      launch(count_kernel<T>, dim3(1), dim3(kMostTensors), 0, cuda_context(ctx).stream(), table);
    });
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_cuda_optimizer() { return std::make_unique<CudaOptimizer>(); }

}  // namespace lockstep
