#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "lockstep/backend/cuda/bias.h"
#include "lockstep/backend/cuda/libraries.h"
#include "lockstep/backend/cuda/library_status.h"
#include "lockstep/backend/cuda/scratch_arena.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;
constexpr int kMostCandidates = 8;
// The alignment that algorithms may rely on. It is the same for all operands, so that no choice depends on an array's
// address.
constexpr std::uint32_t kAlignment = 16;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    case DType::f64: return CUDA_R_64F;
    default: fail("matmul: a matrix is {}, expected a floating type", name(dtype));
  }
}

struct Problem {
  std::int64_t m, n, k;
  MatmulOptions options;
  DType in, out;
  bool bias;  // in the epilogue, if an algorithm supports it

  using Key = std::array<std::int64_t, 9>;
  Key key(int gpu) const {
    return {gpu, m, n, k, options.transpose_a, options.transpose_b, static_cast<int>(in), static_cast<int>(out), bias};
  }
  std::string str() const {
    return fmt::format("matmul {} to {}, m {}, n {}, k {}{}{}{}", name(in), name(out), m, n, k,
                       options.transpose_a ? ", a transposed" : "", options.transpose_b ? ", b transposed" : "",
                       bias ? ", bias" : "");
  }
};

// cuBLASLt's matrices are column-major, and ours are row-major, so it sees ours transposed. We ask for c' = op(b)'
// op(a)': its A is our b, its B our a.
struct Plan {
  bool bias = false;  // in the epilogue
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

template <typename T>
void set(cublasLtMatmulDescOpaque_t& descriptor, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(&descriptor, attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

cublasLtMatrixLayoutOpaque_t layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayoutOpaque_t made;
  check_cublas(cublasLtMatrixLayoutInit(&made, cuda_type(dtype), static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), rows),
               "cublasLtMatrixLayoutInit");
  return made;
}

class CublasMatmul final : public MatmulKernels {
 public:
  CublasMatmul(LibraryOptions options, AlgorithmChoices& choices, CopyKernels& copy)
      : options_(options), choices_(choices), copy_(copy) {}

  using MatmulKernels::run;
  void run(KernelContext& kernel_context, const kernels::Matmul& call) override {
    CudaContext& context = cuda_context(kernel_context);
    if (call.c.numel() == 0) return;
    const bool wide = call.a.dtype == DType::f64;
    const std::int64_t k = call.a.shape[call.options.transpose_a ? 0 : 1];
    // Without terms, the sum is 0. In f64, cuBLASLt adds no bias.
    if (k == 0) check_cuda(cudaMemsetAsync(call.c.data, 0, call.c.bytes(), context.stream()), "cudaMemsetAsync");
    bool added = false;
    if (k > 0) {
      const Problem problem{call.c.shape[0], call.c.shape[1],   k, call.options, call.a.dtype,
                            call.c.dtype,    call.bias && !wide};
      added = run(context, problem, call.a, call.b, problem.bias ? call.bias : View{}, call.c);
    }
    if (call.bias && !added) add_bias(context, call.c, call.bias);
  }

 private:
  // Returns whether c includes the bias.
  bool run(CudaContext& context, const Problem& problem, const View& a, const View& b, const View& bias,
           const View& c) {
    // Find or make operands with the types and alignment that the algorithm expects. The bias has c's type.
    std::size_t bytes = ScratchArena::bytes_of(kWorkspace);
    auto in_place = [](const View& v, DType dtype) {
      return v.dtype == dtype && reinterpret_cast<std::uintptr_t>(v.data) % kAlignment == 0;
    };
    auto room = [&](const View& v, DType dtype) {
      if (v && !in_place(v, dtype))
        bytes += ScratchArena::bytes_of(static_cast<std::size_t>(v.numel()) * item_size(dtype));
    };
    room(a, problem.in);
    room(b, problem.in);
    room(bias, problem.out);
    room(c, problem.out);
    ScratchArena arena(context, bytes);
    void* workspace = arena.take(kWorkspace);
    auto bring = [&](const View& v, DType dtype) {
      if (!v || in_place(v, dtype)) return v.data;
      const View copy = arena.take({nullptr, dtype, Layout::plain, v.shape});
      copy_.run(context, kernels::Copy{v, copy});
      return copy.data;
    };
    void* const a_data = bring(a, problem.in);
    void* const b_data = bring(b, problem.in);
    void* const bias_data = bring(bias, problem.out);
    const View result = in_place(c, problem.out) ? c : arena.take({nullptr, problem.out, Layout::plain, c.shape});

    const Operands operands{a_data, b_data, bias_data, result.data, workspace};
    const Plan& plan = this->plan(context, problem, operands);
    check_cublas(multiply(context, problem, plan, operands), "cublasLtMatmul");
    if (result.data != c.data) copy_.run(context, kernels::Copy{result, c});
    return plan.bias;
  }

  struct Operands {
    const void* a;
    const void* b;
    const void* bias;
    void* c;
    void* workspace;
  };

  // Takes a copy of the plan, because it sets this call's bias.
  cublasStatus_t multiply(CudaContext& context, const Problem& problem, Plan plan, const Operands& o) {
    if (plan.bias) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const bool wide = problem.in == DType::f64;
    return cublasLtMatmul(context.cublas(), &plan.product, wide ? static_cast<const void*>(&one) : &one_f, o.b, &plan.a,
                          o.a, &plan.b, wide ? static_cast<const void*>(&zero) : &zero_f, o.c, &plan.c, o.c, &plan.c,
                          &plan.algorithm, o.workspace, kWorkspace, context.stream());
  }

  const Plan& plan(CudaContext& context, const Problem& problem, const Operands& operands) {
    std::scoped_lock lock(mutex_);
    std::unique_ptr<Plan>& made = plans_[problem.key(context.gpu())];
    if (!made) made = make_plan(context, problem, operands);
    return *made;
  }

  std::unique_ptr<Plan> make_plan(CudaContext& context, const Problem& problem, const Operands& operands) {
    auto plan = std::make_unique<Plan>();
    const bool wide = problem.in == DType::f64;
    const cublasComputeType_t compute = wide                                        ? CUBLAS_COMPUTE_64F
                                        : problem.in == DType::f32 && options_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                    : CUBLAS_COMPUTE_32F;
    check_cublas(cublasLtMatmulDescInit(&plan->product, compute, wide ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescInit");
    const auto& [transpose_a, transpose_b] = problem.options;
    set(plan->product, CUBLASLT_MATMUL_DESC_TRANSA, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan->product, CUBLASLT_MATMUL_DESC_TRANSB, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    plan->bias = problem.bias;
    if (problem.bias) {
      set(plan->product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(problem.out));
      // Suggestions may depend on the bias's address, so use one with the least alignment that a bias may have.
      const void* const place = static_cast<const std::byte*>(operands.workspace) + kAlignment;
      set(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, place);
    }
    // Extents in memory order: our rows are its columns.
    plan->a = transpose_b ? layout(problem.in, problem.k, problem.n) : layout(problem.in, problem.n, problem.k);
    plan->b = transpose_a ? layout(problem.in, problem.m, problem.k) : layout(problem.in, problem.k, problem.m);
    plan->c = layout(problem.out, problem.n, problem.m);

    cublasLtMatmulPreferenceOpaque_t preference;
    check_cublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    // Partial sums must be added in f32, not in the result's type, which may be bf16 or f16.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, kAlignment);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(kMostCandidates);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(context.cublas(), &plan->product, &plan->a, &plan->b, &plan->c, &plan->c,
                                       &preference, kMostCandidates, results.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
    results.resize(static_cast<std::size_t>(found));
    std::erase_if(results,
                  [&](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS || r.workspaceSize > kWorkspace; });
    if (results.empty() && problem.bias) {
      Problem without = problem;
      without.bias = false;
      return make_plan(context, without, operands);
    }
    check(!results.empty(), "cuBLASLt has no algorithm for {}", problem);

    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, context.gpu()), "cudaGetDeviceProperties");
    const std::string name = fmt::format("{} on {}, cuBLASLt {}{}", problem.str(), properties.name,
                                         cublasLtGetVersion(), options_.tf32 ? ", TF32" : "");
    const std::size_t chosen = choices_.choose(name, results.size(), context.stream(), [&](std::size_t i) {
      plan->algorithm = results[i].algo;
      const cublasStatus_t status = multiply(context, problem, *plan, operands);
      if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "cublasLtMatmul");
      return status == CUBLAS_STATUS_SUCCESS;
    });
    plan->algorithm = results[chosen].algo;
    return plan;
  }

  const LibraryOptions options_;
  AlgorithmChoices& choices_;
  CopyKernels& copy_;
  std::mutex mutex_;
  std::map<Problem::Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::unique_ptr<MatmulKernels> make_cublas_matmul(LibraryOptions options, AlgorithmChoices& choices,
                                                  CopyKernels& copy) {
  return std::make_unique<CublasMatmul>(options, choices, copy);
}

}  // namespace lockstep
