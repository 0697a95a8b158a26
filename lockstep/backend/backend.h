// Internal: the kernels of one kind of device, family by family. A back end is made by the Runtime that owns it; there
// is no registry. Several lanes' workers call kernels at once, each with its own KernelContext.
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
#include "lockstep/device/memory.h"

namespace lockstep {

class MemorySource;  // device/memory.h
class Stream;        // device/stream.h

// One kernel object of each family; none is null.
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
  // Makes the context of a lane with this stream (null: the lane computes on its worker) and this many threads. Kernels
  // take their own device memory from `scratch`.
  virtual std::unique_ptr<KernelContext> make_context([[maybe_unused]] const std::shared_ptr<Stream>& stream,
                                                      int threads,
                                                      [[maybe_unused]] std::shared_ptr<MemorySource> scratch) {
    return std::make_unique<KernelContext>(threads);
  }
  // Makes a context for capturing the work of a lane with the context `like`. Nothing is made or grown during the
  // capture.
  virtual std::unique_ptr<KernelContext> make_capture_context(const std::shared_ptr<Stream>& stream,
                                                              std::shared_ptr<MemorySource> memory,
                                                              const KernelContext& like) {
    return make_context(stream, like.threads_per_shard, std::move(memory));
  }
  virtual std::string_view name() const = 0;
  // Whether the hardware multiplies bf16 or f16. If not, it works through f32 and saves no time.
  virtual bool multiplies(DType half) const = 0;
  // Whether results depend on KernelContext::threads, as those of oneDNN's bf16 kernels do.
  virtual bool threads_decide_bits([[maybe_unused]] DType dtype) const { return false; }
  // y = x, like kernels::Copy, when only one of the two is in this device's memory (x, if `from_here`) and the
  // other is in the memory of the host or of another device.
  virtual void transfer(KernelContext& context, const View& x, const View& y, [[maybe_unused]] bool from_here) {
    run(context, kernels::Copy{x, y});
  }

  template <typename Call>
  void run(KernelContext& context, const Call& call) {
    const auto run_in = [&](auto&... families) {
      static_assert((knows<decltype(*families), Call> + ...) == 1, "one family has a kernel for each call");
      (run_if_known(*families, context, call), ...);
    };
    auto& f = families_;
    run_in(f.elementwise, f.copy, f.index, f.reduce, f.matmul, f.conv, f.norm, f.pool, f.softmax, f.random,
           f.optimizer);
  }
  // For the layouts and sizes that they ask for.
  const MatmulKernels& matmul() const { return *families_.matmul; }
  const ConvKernels& conv() const { return *families_.conv; }

  // A measurement may put kernels here that note calls and pass them on, before the first call.
  KernelFamilies& families() { return families_; }

 protected:
  explicit Backend(KernelFamilies families) : families_(std::move(families)) {}

 private:
  template <typename Family, typename Call>
  static constexpr bool knows = requires(Family& family, KernelContext& context, const Call& call) {
    family.run(context, call);
  };
  template <typename Family, typename Call>
  static void run_if_known(Family& family, KernelContext& context, const Call& call) {
    if constexpr (knows<Family, Call>) family.run(context, call);
  }

  KernelFamilies families_;
};

// Plain loops in f64, every dtype and layout: the oracle of every test. Deliberately simple and slow.
std::unique_ptr<Backend> make_reference_backend();

struct CpuBackendOptions {
  // Sums convolutions directly, never with Winograd's algorithm: slower, but closer to exact sums. No effect on bf16 in
  // hardware.
  bool direct_conv = false;
};
// Vectorized loops, f16 through f32, and oneDNN for bf16 in hardware. Loops in f64 are plain. Throws for an invalid
// LOCKSTEP_SIMD.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

struct CudaBackendOptions {
  // Multiplies f32 in TF32, with 10 bits of mantissa: faster.
  bool tf32 = false;
  // The file that keeps choices of algorithms; see backend/cuda/algorithm_choices.h. Empty: the libraries' suggestions.
  std::filesystem::path algorithms = {};
};
// cuDNN, cuBLASLt, and Lockstep's own kernels, for all GPUs. Throws if Lockstep was built without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options = {});

}  // namespace lockstep
