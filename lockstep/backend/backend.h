// Internal: the kernels of one kind of device, family by family. The Runtime that owns a back end makes it; there is no
// registry. The workers of several lanes call kernels concurrently, each with its own KernelContext.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "lockstep/backend/attention.h"
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
  std::unique_ptr<AttentionKernels> attention;
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
  // Makes a context for capturing the work of a lane whose context is `like`. Kernels must not allocate during the
  // capture, so the new context gets in advance what `like` has needed.
  virtual std::unique_ptr<KernelContext> make_capture_context(const std::shared_ptr<Stream>& stream,
                                                              std::shared_ptr<MemorySource> memory,
                                                              const KernelContext& like) {
    return make_context(stream, like.threads_per_shard, std::move(memory));
  }
  virtual std::string_view name() const = 0;
  // Whether the hardware multiplies `half`, bf16 or f16. If not, kernels convert it to f32, which saves no time.
  virtual bool multiplies(DType half) const = 0;
  // Whether there are kernels for attention in one pass on this type. If not, other kernels compute it step by step.
  virtual bool fuses_attention([[maybe_unused]] DType dtype) const { return false; }
  // Whether results depend on KernelContext::threads_per_shard, as those of oneDNN's bf16 kernels do.
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
    run_in(f.elementwise, f.copy, f.index, f.reduce, f.matmul, f.conv, f.norm, f.pool, f.softmax, f.random, f.optimizer,
           f.attention);
  }
  // The kernels that know preferred layouts and the sizes of prepared weights.
  const MatmulKernels& matmul() const { return *families_.matmul; }
  const ConvKernels& conv() const { return *families_.conv; }

  // Before the first call, a measurement may replace these kernels by ones that record each call and forward it.
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

// Makes the oracle of every test: plain loops in f64 for every dtype and layout. Deliberately simple and slow.
std::unique_ptr<Backend> make_reference_backend();

struct CpuBackendOptions {
  // Sums convolutions directly, never with Winograd's algorithm: slower, but closer to exact sums. No effect on bf16 in
  // hardware.
  bool direct_conv = false;
};
// Makes vectorized kernels, which convert f16 to f32 and use oneDNN if the processor multiplies bf16. Throws for an
// invalid LOCKSTEP_SIMD.
std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options = {});

struct CudaBackendOptions {
  // Multiplies f32 in TF32, with 10 bits of mantissa: faster.
  bool tf32 = false;
  // The file that keeps the chosen algorithms; see backend/cuda/algorithm_choices.h. Empty: the libraries' suggestions.
  std::filesystem::path algorithms = {};
};
// Makes kernels from cuDNN, cuBLASLt, and Lockstep's own, for all GPUs. Throws if Lockstep was built without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const CudaBackendOptions& options = {});

}  // namespace lockstep
