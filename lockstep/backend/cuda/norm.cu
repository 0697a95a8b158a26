#include "lockstep/backend/norm.h"

#include <vector>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/norm_kernels.h"
#include "lockstep/backend/cuda/tree.cuh"

namespace lockstep {
inline namespace norm_cu {

using namespace cuda;

constexpr int kMostParts = 128, kPartsDepth = 7;

// Statistics of up to kMostParts shards; a shard with n = 0 is missing.
template <typename C>
struct Parts {
  int count;
  std::int64_t n[kMostParts];
  const C *mean[kMostParts], *m2[kMostParts];
};

template <typename C>
__global__ void merge_stats_kernel(const __grid_constant__ Parts<C> parts, unsigned channels, C* mean, C* m2) {
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  struct Moments {
    std::int64_t n;
    double mean, m2;
  };
  // The bits are those that norm.h specifies.
  const Moments all = fold_tree<kPartsDepth>(
      parts.count,
      [&](int i) {
        return parts.n[i] == 0 ? Moments{} : Moments{parts.n[i], double{parts.mean[i][c]}, double{parts.m2[i][c]}};
      },
      [](const Moments& a, const Moments& b) {
        if (a.n == 0) return b;
        if (b.n == 0) return a;
        const std::int64_t n = a.n + b.n;
        const double part = static_cast<double>(b.n) / static_cast<double>(n), d = b.mean - a.mean;
        return Moments{n, static_cast<C>(a.mean + d * part),
                       static_cast<C>(a.m2 + b.m2 + d * d * static_cast<double>(a.n) * part)};
      });
  mean[c] = static_cast<C>(all.mean);
  m2[c] = static_cast<C>(all.m2);
}

template <typename C>
__global__ void commit_kernel(const C* mean, const C* m2, double momentum, double unbiased, C* running_mean,
                              C* running_var, const std::int64_t* batches, unsigned channels) {
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (momentum < 0) momentum = 1 / static_cast<double>(*batches);
  // A batch of no values has no statistics.
  if (c >= channels || unbiased < 0) return;
  auto move_to = [&](C& running, double value) { running = static_cast<C>(running + momentum * (value - running)); };
  move_to(running_mean[c], mean[c]);
  if (unbiased > 0) move_to(running_var[c], m2[c] / unbiased);
}

__global__ void count_batch_kernel(std::int64_t* batches) { ++*batches; }

class CudaNorm final : public NormKernels {
 public:
  void run(KernelContext& context, const kernels::NormStats& call) override {
    cuda::batch_norm_stats(cuda_context(context), call.x, call.stats);
  }

  void run(KernelContext& context, const kernels::MergeNormStats& call) override {
    visit_floating(call.merged.mean.dtype, "merge_stats", [&](auto zero) {
      merge_stats_as<Compute<decltype(zero)>>(cuda_context(context), call.parts, call.merged);
    });
  }

  void run(KernelContext& context, const kernels::Norm& call) override {
    cuda::batch_norm_forward(cuda_context(context), call.x, call.stats, call.eps, call.gamma, call.beta, call.residual,
                             call.relu, call.y);
  }

  void run(KernelContext& context, const kernels::NormBackwardStats& call) override {
    cuda::batch_norm_backward_stats(cuda_context(context), call.dy, call.x, call.y, call.stats, call.eps, call.dgamma,
                                    call.dbeta);
  }

  void run(KernelContext& context, const kernels::NormBackwardData& call) override {
    cuda::batch_norm_backward_data(cuda_context(context), call.dy, call.x, call.y, call.stats, call.eps, call.gamma,
                                   call.sum_g, call.sum_g_xhat, call.dx, call.dresidual);
  }

  void run(KernelContext& context, const kernels::CommitNormStats& call) override {
    visit_floating(call.running_mean.dtype, "commit", [&](auto zero) {
      using C = Compute<decltype(zero)>;
      const auto channels = static_cast<unsigned>(call.running_mean.numel());
      // A separate kernel counts first, so that all blocks of the next kernel read the new count.
      launch(count_batch_kernel, dim3(1), dim3(1), 0, cuda_context(context).stream(), call.batches.as<std::int64_t>());
      launch(commit_kernel<C>, blocks_for(channels), dim3(kThreads), 0, cuda_context(context).stream(),
             call.stats.mean.as<C>(), call.stats.m2.as<C>(), call.momentum, static_cast<double>(call.stats.n - 1),
             call.running_mean.as<C>(), call.running_var.as<C>(), call.batches.as<std::int64_t>(), channels);
    });
  }

  void run(KernelContext& context, const kernels::NormRows& call) override {
    cuda::rows_forward(cuda_context(context), call.x, call.weight, call.bias, call.eps, call.mean, call.rstd, call.y);
  }

  void run(KernelContext& context, const kernels::NormRowsBackward& call) override {
    cuda::rows_backward(cuda_context(context), call.dy, call.x, call.mean, call.rstd, call.weight, call.dx,
                        call.dweight, call.dbias);
  }

 private:
  // For more parts than one launch takes, merge complete subtrees first.
  template <typename C>
  static void merge_stats_as(CudaContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& out) {
    const std::int64_t channels = out.mean.numel();
    if (channels == 0) return;
    std::vector<BatchNormStats> merged;
    if (parts.size() > kMostParts) {
      const std::size_t chunks = ceil_div(parts.size(), std::size_t{kMostParts});
      auto* next = static_cast<C*>(ctx.device_scratch(2 * chunks * static_cast<std::size_t>(channels) * sizeof(C)));
      for (std::size_t k = 0; k < chunks; ++k) {
        const auto chunk =
            parts.subspan(k * kMostParts, std::min<std::size_t>(kMostParts, parts.size() - k * kMostParts));
        BatchNormStats of_chunk{0, out.mean, out.m2};
        for (const BatchNormStats& part : chunk) of_chunk.n += part.n;
        of_chunk.mean.data = next;
        of_chunk.m2.data = next + channels;
        next += 2 * channels;
        launch_merge<C>(ctx, chunk, of_chunk);
        merged.push_back(of_chunk);
      }
      check(chunks <= kMostParts, "merge_stats: {} parts are too many", parts.size());
      parts = merged;
    }
    launch_merge<C>(ctx, parts, out);
  }

  template <typename C>
  static void launch_merge(CudaContext& ctx, std::span<const BatchNormStats> parts, const BatchNormStats& out) {
    Parts<C> arguments{};
    arguments.count = static_cast<int>(std::max<std::size_t>(parts.size(), 1));  // no parts: one missing part
    for (std::size_t i = 0; i < parts.size(); ++i) {
      arguments.n[i] = parts[i].n;
      if (parts[i].n == 0) continue;
      arguments.mean[i] = parts[i].mean.as<C>();
      arguments.m2[i] = parts[i].m2.as<C>();
    }
    const auto channels = static_cast<unsigned>(out.mean.numel());
    launch(merge_stats_kernel<C>, blocks_for(channels), dim3(kThreads), 0, ctx.stream(), arguments, channels,
           out.mean.as<C>(), out.m2.as<C>());
  }
};

}  // namespace norm_cu

std::unique_ptr<NormKernels> make_cuda_norm() { return std::make_unique<CudaNorm>(); }

}  // namespace lockstep
