#include "lockstep/backend/backend.h"
#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/libraries.h"
#include "lockstep/backend/cuda/scratch_arena.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

bool pageable(const void* p) {
  cudaPointerAttributes attributes;
  check_cuda(cudaPointerGetAttributes(&attributes, p), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeUnregistered;
}

// Copies an array's bytes between memories. The host may change pageable memory as soon as this returns.
void move(CudaContext& context, const View& from, const View& to) {
  check_cuda(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, context.stream()), "cudaMemcpyAsync");
  if (pageable(from.data) || pageable(to.data)) {
    check_cuda(cudaStreamSynchronize(context.stream()), "cudaStreamSynchronize");
  }
}

// A base class, so that it is constructed before the families and destroyed after them.
struct OwnsChoices {
  AlgorithmChoices choices;
};

class CudaBackend final : private OwnsChoices, public Backend {
 public:
  explicit CudaBackend(const CudaBackendOptions& options)
      : OwnsChoices{AlgorithmChoices(options.algorithms)}, Backend(make_families(options, choices)) {}

  std::string_view name() const override { return "cuda"; }
  bool multiplies(DType) const override { return true; }
  std::unique_ptr<KernelContext> make_context(const std::shared_ptr<Stream>& stream, int,
                                              std::shared_ptr<MemorySource> scratch) override {
    auto cuda_stream = std::dynamic_pointer_cast<CudaStream>(stream);
    check(cuda_stream != nullptr, "cuda: a lane without a CUDA stream");
    return std::make_unique<CudaContext>(std::move(cuda_stream), std::move(scratch));
  }

  std::unique_ptr<KernelContext> make_capture_context(const std::shared_ptr<Stream>& stream,
                                                      std::shared_ptr<MemorySource> memory,
                                                      const KernelContext& like) override {
    auto context = make_context(stream, like.threads_per_shard, std::move(memory));
    static_cast<CudaContext&>(*context).prepare_capture(static_cast<const CudaContext&>(like));
    return context;
  }

  void transfer(KernelContext& kernel_context, const View& x, const View& y, bool from_here) override {
    CudaContext& context = cuda_context(kernel_context);
    if (x.numel() == 0) return;
    if (x.dtype == y.dtype && same_order(x.layout, y.layout, x.shape)) return move(context, x, y);
    // Convert on this side, where it is fast.
    View between = from_here ? y : x;
    ScratchArena arena(context, ScratchArena::bytes_of(between.bytes()));
    between = arena.take(between);
    if (from_here) {
      run(context, kernels::Copy{x, between});
      move(context, between, y);
    } else {
      move(context, x, between);
      run(context, kernels::Copy{between, y});
    }
  }

 private:
  // Families that use libraries need `copy` to convert to the libraries' layouts.
  static KernelFamilies make_families(const CudaBackendOptions& options, AlgorithmChoices& choices) {
    const LibraryOptions library{.tf32 = options.tf32};
    KernelFamilies f{.elementwise = make_cuda_elementwise(),
                     .copy = make_cuda_copy(),
                     .index = make_cuda_index(),
                     .reduce = make_cuda_reduce(),
                     .norm = make_cuda_norm(),
                     .pool = make_cuda_pool(),
                     .softmax = make_cuda_softmax(),
                     .random = make_cuda_random(),
                     .optimizer = make_cuda_optimizer(),
                     .attention = no_attention_kernels()};
    f.matmul = make_cublas_matmul(library, choices, *f.copy);
    f.conv = make_cudnn_conv(library, choices, *f.copy);
    return f;
  }
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace lockstep
