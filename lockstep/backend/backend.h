// The kernels of one kind of device, family by family. A back end is made by the Runtime that owns it; there is
// no registry. Kernels are called from the workers of lanes, several at once, each with a KernelContext of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "lockstep/backend/conv.h"
#include "lockstep/backend/copy.h"
#include "lockstep/backend/elementwise.h"
#include "lockstep/backend/index.h"
#include "lockstep/backend/matmul.h"
#include "lockstep/backend/norm.h"
#include "lockstep/backend/optimizer.h"
#include "lockstep/backend/pool.h"
#include "lockstep/backend/random.h"
#include "lockstep/backend/reduce.h"
#include "lockstep/backend/softmax.h"

namespace LOCKSTEP_API lockstep {

class MemorySource;  // device/memory.h
class Stream;        // device/stream.h

// One of each; none is missing.
struct KernelFamilies {
  std::unique_ptr<ElementwiseKernels> elementwise;
  std::unique_ptr<CopyKernels> copy;
  std::unique_ptr<IndexKernels> index;
  std::unique_ptr<ReduceKernels> reduce;
  std::unique_ptr<MatmulKernels> matmul;
  std::unique_ptr<ConvKernels> conv;
  std::unique_ptr<NormKernels> norm;
  std::unique_ptr<PoolKernels> pool;
  std::unique_ptr<SoftmaxKernels> softmax;
  std::unique_ptr<RandomKernels> random;
  std::unique_ptr<OptimizerKernels> optimizer;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // For a lane with this stream (none: it computes on its worker) and this many threads. Kernels that need memory of a device
  // for themselves take it from `scratch`.
  virtual std::unique_ptr<KernelContext> make_context([[maybe_unused]] const std::shared_ptr<Stream>& stream, int threads,
                                                      [[maybe_unused]] std::shared_ptr<MemorySource> scratch) {
    return std::make_unique<KernelContext>(threads);
  }
  // For capturing what a lane with the context `like` does: nothing has to be made or grown meanwhile.
  virtual std::unique_ptr<KernelContext> make_capture_context(const std::shared_ptr<Stream>& stream,
                                                              std::shared_ptr<MemorySource> memory,
                                                              const KernelContext& like) {
    return make_context(stream, like.threads, std::move(memory));
  }
  virtual std::string_view name() const = 0;
  // Whether bf16 or f16 is multiplied in hardware. Elsewhere it works, through f32, and saves nothing.
  virtual bool multiplies(DType half) const = 0;
  // Whether the bits of results depend on KernelContext::threads, as those of oneDNN's bf16 kernels do.
  virtual bool threads_decide_bits([[maybe_unused]] DType dtype) const { return false; }
  // y = x, as CopyKernels::copy, where only one of both is in this device's memory (`from_here`: x is), and the other in
  // the host's or another device's.
  virtual void transfer(KernelContext& context, const View& x, const View& y, [[maybe_unused]] bool from_here) {
    copy().copy(context, x, y);
  }

  ElementwiseKernels& elementwise() { return *families_.elementwise; }
  CopyKernels& copy() { return *families_.copy; }
  IndexKernels& index() { return *families_.index; }
  ReduceKernels& reduce() { return *families_.reduce; }
  MatmulKernels& matmul() { return *families_.matmul; }
  ConvKernels& conv() { return *families_.conv; }
  NormKernels& norm() { return *families_.norm; }
  PoolKernels& pool() { return *families_.pool; }
  SoftmaxKernels& softmax() { return *families_.softmax; }
  RandomKernels& random() { return *families_.random; }
  OptimizerKernels& optimizer() { return *families_.optimizer; }

 protected:
  explicit Backend(KernelFamilies families) : families_(std::move(families)) {}

 private:
  KernelFamilies families_;
};

// Plain loops in f64, every dtype and layout: the oracle of every test. Deliberately simple and slow.
std::unique_ptr<Backend> make_reference_backend();

struct CpuBackendOptions {
  // Sum convolutions directly, never with Winograd's algorithm: slower, and closer to exact sums. Not for bf16 in hardware.
  bool direct_conv = false;
};
// Vectorized loops, f16 by way of f32, and oneDNN for bf16 in hardware; f64 goes to the reference kernels. Throws for a wrong
// LOCKSTEP_SIMD.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

struct CudaBackendOptions {
  // Multiply f32 in TF32, with 10 bits of mantissa: faster.
  bool tf32 = false;
  // Where choices of algorithms are kept; see backend/cuda/algorithm_choices.h. Empty: what the libraries suggest.
  std::filesystem::path algorithms = {};
};
// cuDNN, cuBLASLt and kernels of our own, for all GPUs. Throws where Lockstep was built without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options = {});

}  // namespace lockstep
