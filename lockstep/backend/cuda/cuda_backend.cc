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

// The bytes of a tensor, from one memory to another. The host may change pageable memory as soon as this returns.
void move(CudaContext& context, const View& from, const View& to) {
  check_cuda(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, context.stream()), "cudaMemcpyAsync");
  if (pageable(from.data) || pageable(to.data)) {
    check_cuda(cudaStreamSynchronize(context.stream()), "cudaStreamSynchronize");
  }
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaBackendOptions& options)
      : choices_(options.algorithms),
        matmul_(make_cublas_matmul({.tf32 = options.tf32}, choices_, *copy_)),
        conv_(make_cudnn_conv({.tf32 = options.tf32}, choices_, *copy_)) {}

  std::string_view name() const override { return "cuda"; }
  bool native_bf16() const override { return true; }
  std::unique_ptr<KernelContext> make_context(const std::shared_ptr<Stream>& stream, int) override {
    auto cuda_stream = std::dynamic_pointer_cast<CudaStream>(stream);
    check(cuda_stream != nullptr, "cuda: a lane without a CUDA stream");
    return std::make_unique<CudaContext>(std::move(cuda_stream));
  }

  void transfer(KernelContext& kernel_context, const View& x, const View& y, bool from_here) override {
    CudaContext& context = cuda_context(kernel_context);
    if (x.numel() == 0) return;
    if (x.dtype == y.dtype && same_order(x.layout, y.layout, x.shape)) return move(context, x, y);
    // Converted on this side, where it is fast.
    View between = from_here ? y : x;
    ScratchArena arena(context, ScratchArena::bytes_of(between.bytes()));
    between = arena.take(between);
    if (from_here) {
      copy_->copy(context, x, between);
      move(context, between, y);
    } else {
      move(context, x, between);
      copy_->copy(context, between, y);
    }
  }

  ElementwiseKernels& elementwise() override { return *elementwise_; }
  CopyKernels& copy() override { return *copy_; }
  ReduceKernels& reduce() override { return *reduce_; }
  MatmulKernels& matmul() override { return *matmul_; }
  ConvKernels& conv() override { return *conv_; }
  NormKernels& norm() override { return *norm_; }
  PoolKernels& pool() override { return *pool_; }
  SoftmaxKernels& softmax() override { return *softmax_; }
  RandomKernels& random() override { return *random_; }
  OptimizerKernels& optimizer() override { return *optimizer_; }

 private:
  AlgorithmChoices choices_;
  std::unique_ptr<ElementwiseKernels> elementwise_ = make_cuda_elementwise();
  std::unique_ptr<CopyKernels> copy_ = make_cuda_copy();
  std::unique_ptr<ReduceKernels> reduce_ = make_cuda_reduce();
  std::unique_ptr<NormKernels> norm_ = make_cuda_norm();
  std::unique_ptr<PoolKernels> pool_ = make_cuda_pool();
  std::unique_ptr<SoftmaxKernels> softmax_ = make_cuda_softmax();
  std::unique_ptr<RandomKernels> random_ = make_cuda_random();
  std::unique_ptr<OptimizerKernels> optimizer_ = make_cuda_optimizer();
  std::unique_ptr<MatmulKernels> matmul_;
  std::unique_ptr<ConvKernels> conv_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace lockstep
