#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "lockstep/backend/cuda/bias.h"
#include "lockstep/backend/cuda/cudnn_conv_plan.h"
#include "lockstep/backend/cuda/libraries.h"
#include "lockstep/backend/cuda/library_status.h"
#include "lockstep/backend/cuda/norm_kernels.h"
#include "lockstep/backend/cuda/scratch_arena.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

constexpr std::uintptr_t kVectorBytes = 16;

// Tensor cores prefer channels-last; FMA kernels prefer plain layout.
Layout favorite(DType dtype, bool tf32) {
  return is_half_dtype(dtype) || (dtype == DType::f32 && tf32) ? Layout::channels_last : Layout::plain;
}

bool usable(const View& v, DType dtype, Layout layout) {
  return v.dtype == dtype && same_order(v.layout, layout, v.shape) &&
         reinterpret_cast<std::uintptr_t>(v.data) % kVectorBytes == 0;
}

void set_zero(CudaContext& context, const View& v) {
  check_cuda(cudaMemsetAsync(v.data, 0, v.bytes(), context.stream()), "cudaMemsetAsync");
}

class CudnnConv final : public ConvKernels {
 public:
  CudnnConv(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy)
      : options_(options), choices_(choices), copy_(copy) {}

  Layout preferred_layout(DType dtype, std::int64_t) const override { return favorite(dtype, options_.tf32); }

  using ConvKernels::run;
  void run(KernelContext& kernel_context, const kernels::Conv& call) override {
    CudaContext& context = cuda_context(kernel_context);
    if (call.y.numel() == 0) return;
    run(context, {ConvPass::forward, call.x.dtype, {}, call.x.shape, call.w.shape, call.y.shape, call.options}, call.x,
        call.w, call.y);
    if (!call.bias) return;
    if (call.y.layout == Layout::blocked16) {  // never preferred on a GPU, but supported
      const View wide{nullptr, call.y.dtype, Layout::channels_last, call.y.shape};
      ScratchArena arena(context, ScratchArena::bytes_of(wide.bytes()));
      const View copy = arena.take(wide);
      copy_.run(context, kernels::Copy{call.y, copy});
      add_bias(context, copy, call.bias);
      copy_.run(context, kernels::Copy{copy, call.y});
    } else {
      add_bias(context, call.y, call.bias);
    }
  }

  void run(KernelContext& kernel_context, const kernels::ConvBackwardData& call) override {
    if (call.dx.numel() == 0) return;
    run(cuda_context(kernel_context),
        {ConvPass::backward_data, call.dy.dtype, {}, call.dx.shape, call.w.shape, call.dy.shape, call.options}, call.dx,
        call.w, call.dy);
  }

  void run(KernelContext& kernel_context, const kernels::ConvBackwardWeights& call) override {
    CudaContext& context = cuda_context(kernel_context);
    if (call.dy.numel() == 0) {
      set_zero(context, call.dw);
      if (call.db) set_zero(context, call.db);
      return;
    }
    run(context,
        {ConvPass::backward_weights, call.x.dtype, {}, call.x.shape, call.dw.shape, call.dy.shape, call.options},
        call.x, call.dw, call.dy);
    if (call.db) cuda::sum_channels(context, call.dy, call.db);
  }

 private:
  struct Way {
    DType dtype;
    Layout layout;
  };
  // Ways to compute a problem, best first: in the preferred layout, then in the other one; and in f32 for problems that
  // cuDNN does not support in bf16 or f16, such as a single channel.
  std::vector<Way> ways(DType dtype) const {
    std::vector<Way> all;
    for (const DType in : is_half_dtype(dtype) ? std::vector{dtype, DType::f32} : std::vector{dtype}) {
      const Layout first = favorite(in, options_.tf32);
      all.push_back({in, first});
      all.push_back({in, first == Layout::plain ? Layout::channels_last : Layout::plain});
    }
    return all;
  }

  // The caller holds mutex_.
  ConvPlan& plan(CudaContext& context, const ConvProblem& problem) {
    std::unique_ptr<ConvPlan>& made = plans_[problem.key(context.gpu())];
    if (!made) {
      auto plan = std::make_unique<ConvPlan>(problem, context.cudnn(), options_.tf32);
      if (plan->candidates() > 0) choose(context, problem, *plan);
      made = std::move(plan);
    }
    return *made;
  }

  // Timing needs operands, whose contents do not matter.
  void choose(CudaContext& context, const ConvProblem& problem, ConvPlan& plan) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, context.gpu()), "cudaGetDeviceProperties");
    const std::string name = fmt::format("{} on {}, cuDNN {}{}", problem.str(), properties.name, cudnnGetVersion(),
                                         options_.tf32 ? ", TF32" : "");
    auto bytes = [&](const Shape& shape) {
      return ScratchArena::bytes_of(static_cast<std::size_t>(shape.numel()) * item_size(problem.dtype));
    };
    const std::size_t chosen = choices_.choose(name, plan.candidates(), context.stream(), [&](std::size_t candidate) {
      ScratchArena arena(context, bytes(problem.x) + bytes(problem.w) + bytes(problem.y) +
                                      ScratchArena::bytes_of(plan.most_workspace_bytes()));
      const ConvOperands operands{arena.take(bytes(problem.x)), arena.take(bytes(problem.w)),
                                  arena.take(bytes(problem.y))};
      plan.use(candidate);
      return plan.run(context.cudnn(), operands, arena.take(plan.workspace_bytes()));
    });
    plan.use(chosen);
  }

  // x, w, and y may stand for their gradients. `asked.pass` decides which one is the result.
  void run(CudaContext& context, const ConvProblem& asked, const View& x, const View& w, const View& y) {
    for (const Way& way : ways(asked.dtype)) {
      ConvProblem problem = asked;
      problem.dtype = way.dtype;
      problem.layout = way.layout;
      // Hold the lock until an algorithm has run once, so that concurrent calls of the problem use the same algorithm.
      std::unique_lock lock(mutex_);
      ConvPlan& plan = this->plan(context, problem);
      while (plan.candidates() > 0) {
        if (plan.proven()) lock.unlock();
        if (run(context, problem, plan, {&x, &w, &y})) {
          if (lock) plan.prove();
          return;
        }
        plan.reject();
      }
    }
    fail("cuDNN has no deterministic algorithm for {}", asked.str());
  }

  bool run(CudaContext& context, const ConvProblem& problem, const ConvPlan& plan, std::array<const View*, 3> views) {
    const std::size_t result = problem.pass == ConvPass::forward ? 2 : problem.pass == ConvPass::backward_data ? 0 : 1;
    std::size_t bytes = ScratchArena::bytes_of(plan.workspace_bytes());
    std::array<View, 3> used;
    for (std::size_t i = 0; i < used.size(); ++i) {
      used[i] = {nullptr, problem.dtype, problem.layout, views[i]->shape};
      if (usable(*views[i], problem.dtype, problem.layout)) {
        used[i].data = views[i]->data;
      } else {
        bytes += ScratchArena::bytes_of(used[i].bytes());
      }
    }
    ScratchArena arena(context, bytes);
    void* workspace = arena.take(plan.workspace_bytes());
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i].data) continue;
      used[i] = arena.take(used[i]);
      if (i != result) copy_.run(context, kernels::Copy{*views[i], used[i]});
    }
    if (!plan.run(context.cudnn(), {used[0].data, used[1].data, used[2].data}, workspace)) return false;
    if (used[result].data != views[result]->data) copy_.run(context, kernels::Copy{used[result], *views[result]});
    return true;
  }

  const LibraryOptions options_;
  AlgorithmChoices& choices_;
  CopyKernels& copy_;
  std::mutex mutex_;
  std::map<ConvProblem::Key, std::unique_ptr<ConvPlan>> plans_;
};

}  // namespace

std::unique_ptr<ConvKernels> make_cudnn_conv(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy) {
  return std::make_unique<CudnnConv>(options, choices, copy);
}

}  // namespace lockstep
