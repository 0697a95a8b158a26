#include "lockstep/backend/optimizer.h"

#include <cmath>

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/tensor_table.h"

namespace lockstep {
inline namespace optimizer_cu {

using namespace cuda;

// One parameter, with as many states as its rule may have. Absent states are null.
template <typename T, int kStates>
struct Parameter {
  T* weight;
  const T* grad;
  T* states[kStates];
  const std::uint8_t* present;
  std::int64_t* steps;
  std::int64_t n;
  bool aligned;
};

// Calls update(weight, gradient, states) for the elements of a block's chunk, by vectors, and stores weights and
// states. Absent states are 0.
template <typename T, int kStates, typename Update>
__device__ void update_chunk(const TensorTable<Parameter<T, kStates>>& table, const Update& update) {
  constexpr int kWidth = kVector<T>;
  const TableChunk chunk(table, blockIdx.x);
  const Parameter<T, kStates>& p = table.tensors[chunk.tensor];
  if (p.present && *p.present == 0) return;
  const std::int64_t stride = std::int64_t{blockDim.x} * kWidth;
  for (std::int64_t i = chunk.begin + std::int64_t{threadIdx.x} * kWidth; i < chunk.end; i += stride) {
    T states[3] = {};
    if (i + kWidth <= chunk.end) {
      Vector<T, kWidth> w = load<kWidth>(p.weight + i, p.aligned), s[kStates] = {};
      const Vector<T, kWidth> g = load<kWidth>(p.grad + i, p.aligned);
#pragma unroll
      for (int j = 0; j < kStates; ++j) {
        if (p.states[j]) s[j] = load<kWidth>(p.states[j] + i, p.aligned);
      }
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
#pragma unroll
        for (int j = 0; j < kStates; ++j) states[j] = s[j].at[k];
        update(w.at[k], g.at[k], states);
#pragma unroll
        for (int j = 0; j < kStates; ++j) s[j].at[k] = states[j];
      }
      store(p.weight + i, w, p.aligned);
#pragma unroll
      for (int j = 0; j < kStates; ++j) {
        if (p.states[j]) store(p.states[j] + i, s[j], p.aligned);
      }
    } else {
      for (std::int64_t k = i; k < chunk.end; ++k) {
#pragma unroll
        for (int j = 0; j < kStates; ++j) states[j] = p.states[j] ? p.states[j][k] : T(0);
        update(p.weight[k], p.grad[k], states);
#pragma unroll
        for (int j = 0; j < kStates; ++j) {
          if (p.states[j]) p.states[j][k] = states[j];
        }
      }
    }
  }
}

// A kernel before this one may have computed `scale`, the factor of clipping and loss scaling. This kernel only reads
// step counts, because many blocks share one; count_kernel() then increments them.
template <typename T, typename Rule>
__global__ void update_kernel(const __grid_constant__ TensorTable<Parameter<T, Rule::kMostStates>> table, Rule rule,
                              const double* scale, const double* rate) {
  const T by = scale ? static_cast<T>(*scale) : T(1);
  if (by < 0) return;
  std::int64_t number = 0;
  if constexpr (Rule::kCountsSteps) number = *table.tensors[TableChunk(table, blockIdx.x).tensor].steps + 1;
  const typename Rule::template Step<T> step(rule, rate ? *rate : rule.lr, number);
  update_chunk<T, Rule::kMostStates>(table,
                                     [=](T& w, T g, T* states) { step(w, by * g, states[0], states[1], states[2]); });
}

// One block; thread i counts the step of tensor i.
template <typename T, int kStates>
__global__ void count_kernel(const __grid_constant__ TensorTable<Parameter<T, kStates>> table) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= table.count) return;
  const Parameter<T, kStates>& p = table.tensors[i];
  if (p.present == nullptr || *p.present != 0) ++*p.steps;
}

__global__ void clip_scale_kernel(double max_norm, const double* squared_norm, double* scale) {
  *scale = clip_factor(max_norm, std::sqrt(*squared_norm));
}

__global__ void loss_scale_kernel(LossScaleArgs args, const double* squared_norm, float* state, double* factor) {
  *factor = loss_scale_factor(args, *squared_norm, state);
}

template <typename T>
T* data(const View& view) {
  return view ? view.as<T>() : nullptr;
}

// Updates the parameters of one dtype, as many at a time as fit in a table.
template <typename T, typename Rule>
void update_as(cudaStream_t stream, const kernels::Update<Rule>& call) {
  constexpr int kStates = Rule::kMostStates;
  TensorTable<Parameter<T, kStates>> table;
  const auto launch_table = [&] {
    if (table.blocks() > 0) {
      launch(update_kernel<T, Rule>, dim3(table.blocks()), dim3(kThreads), 0, stream, table, call.rule,
             data<double>(call.scale), data<double>(call.rate));
    }
    if constexpr (Rule::kCountsSteps) launch(count_kernel<T, kStates>, dim3(1), dim3(kMostTensors), 0, stream, table);
  };
  for (const Update<View>& u : call.updates) {
    if (u.weight.dtype != dtype_of<T>) continue;
    if (table.full()) {
      launch_table();
      table = {};
    }
    Parameter<T, kStates> p{
        .weight = u.weight.as<T>(),
        .grad = u.grad.as<T>(),
        .states = {},
        .present = data<std::uint8_t>(u.present),
        .steps = data<std::int64_t>(u.steps),
        .n = u.weight.numel(),
        .aligned = all_aligned(u.weight.data, u.grad.data, u.states[0].data, u.states[1].data, u.states[2].data)};
    for (int k = 0; k < kStates; ++k) p.states[k] = data<T>(u.states[k]);
    table.add(p);
  }
  if (table.count > 0) launch_table();
}

class CudaOptimizer final : public OptimizerKernels::Each<CudaOptimizer, OptimizerKernels> {
 public:
  template <typename Rule>
  void each(KernelContext& ctx, const kernels::Update<Rule>& call) {
    update_as<float>(cuda_context(ctx).stream(), call);
    update_as<double>(cuda_context(ctx).stream(), call);
  }
  void each(KernelContext& ctx, const kernels::ClipScale& call) {
    launch(clip_scale_kernel, dim3(1), dim3(1), 0, cuda_context(ctx).stream(), call.max_norm,
           call.squared_norm.as<double>(), call.scale.as<double>());
  }
  void each(KernelContext& ctx, const kernels::LossScale& call) {
    launch(loss_scale_kernel, dim3(1), dim3(1), 0, cuda_context(ctx).stream(), call.args,
           call.squared_norm.as<double>(), call.state.as<float>(), call.factor.as<double>());
  }
};

}  // namespace optimizer_cu

std::unique_ptr<OptimizerKernels> make_cuda_optimizer() { return std::make_unique<CudaOptimizer>(); }

}  // namespace lockstep
