#include "lockstep/backend/reduce.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/backend/cuda/columns.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/tensor_table.h"
#include "lockstep/backend/cuda/tree.cuh"
#include "lockstep/backend/formulas.h"

namespace lockstep {
inline namespace reduce_cu {

using namespace cuda;

// Axes of x that are kept or summed over: extents and strides in x, innermost first. Adjacent axes are merged.
struct Axes {
  int dim = 0;
  std::int64_t count = 1;
  std::int64_t extent[Shape::kMaxDim] = {}, stride[Shape::kMaxDim] = {};

  void add(std::int64_t axis_extent, std::int64_t axis_stride) {
    count *= axis_extent;
    if (dim > 0 && stride[dim - 1] * extent[dim - 1] == axis_stride) {
      extent[dim - 1] *= axis_extent;
    } else {
      extent[dim] = axis_extent;
      stride[dim++] = axis_stride;
    }
  }
  // Returns the offset in x of element i over these axes.
  __device__ std::int64_t offset(std::int64_t i) const {
    std::int64_t at = 0;
    for (int k = 0; k < dim - 1; ++k) {
      at += i % extent[k] * stride[k];
      i /= extent[k];
    }
    return dim > 0 ? at + i * stride[dim - 1] : 0;
  }
};

constexpr int kSumThreads = 256, kMostSumBlocks = 528;

// Ways to combine elements: in f64, or for i64 in i64.
struct Sum {
  using Total = double;
  __device__ static double none() { return 0; }
  __device__ static double join(double a, double b) { return a + b; }
};
struct Max {
  using Total = double;
  __device__ static double none() { return -HUGE_VAL; }
  // NaN stays.
  __device__ static double join(double a, double b) { return a != a || a > b ? a : b; }
};

struct IntegerSum {
  using Total = std::int64_t;
  __device__ static Total none() { return 0; }
  __device__ static Total join(Total a, Total b) { return integer_formula<BinaryOp::add>(a, b); }
};
struct IntegerMax {
  using Total = std::int64_t;
  __device__ static Total none() { return std::numeric_limits<Total>::min(); }
  __device__ static Total join(Total a, Total b) { return a > b ? a : b; }
};

// y[kept] = the sum, or the largest element, over `summed`. A block adds a share of the summed elements for some kept
// ones: `lanes` adjacent threads lie along the kept elements, the others along the summed ones. The last block combines
// the shares.
struct SumPlan {
  Axes kept, summed;
  int lanes = 1;
  std::int64_t per_block = 0;
  unsigned blocks = 1, tiles = 1;

  SumPlan(const Shape& x, const Shape& y) {
    std::int64_t stride = 1;
    bool kept_is_inner = false, found = false;
    for (int k = 1; k <= x.dim(); ++k) {
      const std::int64_t extent = x[-k];
      if (extent == 1) continue;
      const bool keep = k <= y.dim() && y[-k] != 1;
      if (!found) kept_is_inner = keep, found = true;
      (keep ? kept : summed).add(extent, stride);
      stride *= extent;
    }
    // Use more lanes while they read adjacent elements, or while threads would have no summed element otherwise.
    while (lanes < kSumThreads && lanes < kept.count &&
           ((kept_is_inner && lanes < 32) || kSumThreads / lanes > summed.count)) {
      lanes *= 2;
    }
    const std::int64_t step = kSumThreads / lanes;
    tiles = static_cast<unsigned>(ceil_div(kept.count, lanes));
    const std::int64_t wanted = std::max<std::int64_t>(kMostSumBlocks / std::int64_t{tiles}, 1);
    per_block = std::max(ceil_div(ceil_div(summed.count, wanted), step) * step, 8 * step);
    blocks = static_cast<unsigned>(std::max<std::int64_t>(ceil_div(summed.count, per_block), 1));
  }
};

// Combines the results of a block's threads that are `lanes` apart, into threads [0, lanes).
template <typename Fold, typename Total = typename Fold::Total>
__device__ Total fold_lanes(Total x, int lanes) {
  __shared__ Total results[kSumThreads];
  const int thread = static_cast<int>(threadIdx.x);
  results[thread] = x;
  for (int half = kSumThreads / 2; half >= lanes; half /= 2) {
    __syncthreads();
    if (thread < half) results[thread] = Fold::join(results[thread], results[thread + half]);
  }
  __syncthreads();
  return results[thread];
}

template <typename Fold, typename T>
__global__ void __launch_bounds__(kSumThreads) reduce_kernel(const __grid_constant__ SumPlan plan, const T* x, T* y,
                                                             typename Fold::Total* partial, unsigned* counters) {
  using Total = typename Fold::Total;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % plan.lanes;
  const std::int64_t kept = std::int64_t{blockIdx.x} * plan.lanes + lane;
  const std::int64_t begin = blockIdx.y * plan.per_block;
  const std::int64_t end = std::min(begin + plan.per_block, plan.summed.count);
  Total sum = Fold::none();
  if (kept < plan.kept.count) {
    const T* from = x + plan.kept.offset(kept);
    for (std::int64_t i = begin + thread / plan.lanes; i < end; i += kSumThreads / plan.lanes) {
      sum = Fold::join(sum, widened(from[plan.summed.offset(i)]));
    }
  }
  sum = fold_lanes<Fold>(sum, plan.lanes);
  const bool writes = thread < plan.lanes && kept < plan.kept.count;
  if (plan.blocks == 1) {
    if (writes) y[kept] = convert<T>(sum);
    return;
  }
  if (writes) partial[blockIdx.y * plan.kept.count + kept] = sum;
  if (!is_last_block(counters + blockIdx.x, gridDim.y)) return;
  Total total = Fold::none();
  if (kept < plan.kept.count) {
    for (unsigned k = static_cast<unsigned>(thread / plan.lanes); k < plan.blocks; k += kSumThreads / plan.lanes) {
      total = Fold::join(total, partial[k * plan.kept.count + kept]);
    }
  }
  __syncthreads();
  total = fold_lanes<Fold>(total, plan.lanes);
  if (writes) y[kept] = convert<T>(total);
}

constexpr int kMostLeaves = 64, kLeavesDepth = 6;

template <typename T>
struct Leaves {
  int count = 0;
  const T* data[kMostLeaves] = {};
};

// A vector of elements of a leaf, or of a sum.
template <typename T>
struct Addend {
  Vector<T, kVector<T>> v;
  bool there = true;

  __device__ friend Addend operator+(Addend a, const Addend& b) {
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) a.v.at[k] += b.v.at[k];
    return a;
  }
};

// Sums kCount leaves, all present; or, if kCount is 0, any number of leaves, some of which may be missing.
template <typename T, int kCount>
__global__ void tree_sum_kernel(const __grid_constant__ Leaves<T> leaves, T* out, std::int64_t n, bool aligned) {
  constexpr int kWidth = kVector<T>;
  const std::int64_t i = thread_number() * kWidth;
  if (i >= n) return;
  const bool whole = i + kWidth <= n;
  auto leaf = [&](int k) {
    Addend<T> a;
    const T* data = leaves.data[k];
    if (kCount == 0 && !data) {
      a.there = false;
    } else if (whole) {
      a.v = load<kWidth>(data + i, aligned);
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) a.v.at[j] = i + j < n ? data[i + j] : T(0);
    }
    return a;
  };
  auto join = [](const Addend<T>& a, const Addend<T>& b) { return !a.there ? b : !b.there ? a : a + b; };
  Addend<T> sum;
  if constexpr (kCount > 0) {
    sum = fold_constant_tree<0, kCount>(leaf, [](const Addend<T>& a, const Addend<T>& b) { return a + b; });
  } else {
    sum = fold_tree<kLeavesDepth>(leaves.count, leaf, join);
  }
  if (whole) {
    store(out + i, sum.v, aligned);
  } else {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (i + j < n) out[i + j] = sum.v.at[j];
    }
  }
}

template <typename T>
void launch_tree_sum(CudaContext& ctx, const Leaves<T>& leaves, T* out, std::int64_t n) {
  bool all_there = true, all_are_aligned = aligned(out);
  for (int k = 0; k < leaves.count; ++k) {
    all_there &= leaves.data[k] != nullptr;
    all_are_aligned &= aligned(leaves.data[k]);
  }
  auto kernel = tree_sum_kernel<T, 0>;
  if (all_there) {
    switch (leaves.count) {
      case 2: kernel = tree_sum_kernel<T, 2>; break;
      case 3: kernel = tree_sum_kernel<T, 3>; break;
      case 4: kernel = tree_sum_kernel<T, 4>; break;
      case 8: kernel = tree_sum_kernel<T, 8>; break;
    }
  }
  launch(kernel, blocks_for(ceil_div(n, kVector<T>)), dim3(kThreads), 0, ctx.stream(), leaves, out, n, all_are_aligned);
}

// One array of squared_norm.
template <typename T>
struct Squared {
  const T* data;
  const std::uint8_t* present;
  std::int64_t n;
};

// Partial sums of all launches are consecutive in memory; the last block of the last launch adds them.
template <typename T>
__global__ void squared_norm_kernel(const __grid_constant__ TensorTable<Squared<T>> table, double* partial,
                                    unsigned before, bool last_launch, double* y, unsigned* counter) {
  double sum = 0;
  if (table.count > 0) {
    const TableChunk chunk(table, blockIdx.x);
    const Squared<T>& x = table.tensors[chunk.tensor];
    if (!x.present || *x.present != 0) {
      for (std::int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
        const double value = widened(x.data[i]);
        sum += value * value;
      }
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[before + blockIdx.x] = sum;
  if (!last_launch || !is_last_block(counter, gridDim.x)) return;
  double total = 0;
  for (unsigned i = threadIdx.x; i < before + gridDim.x; i += blockDim.x) total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *y = total;
}

// Whether a comes before b. NaN counts as the largest.
template <typename C>
__device__ bool precedes(bool descending, C a, C b) {
  return descending ? a > b || (a != a && b == b) : a < b || (a == a && b != b);
}

// One thread per element, which counts the elements that come before its own.
template <typename T>
__global__ void argsort_kernel(bool descending, const T* x, std::int64_t* y, std::int64_t rows, std::int64_t k) {
  const std::int64_t i = thread_number();
  if (i >= rows * k) return;
  const std::int64_t first = i / k * k;
  const Compute<T> own = widened(x[i]);
  std::int64_t before = 0;
  for (std::int64_t j = first; j < first + k; ++j) {
    const Compute<T> other = widened(x[j]);
    if (precedes(descending, other, own) || (j < i && !precedes(descending, own, other))) ++before;
  }
  y[first + before] = i - first;
}

class CudaReduce final : public ReduceKernels {
 public:
  void run(KernelContext& context, const kernels::SumTo& call) override {
    call.x.dtype == DType::i64 ? reduce<IntegerSum>(cuda_context(context), "sum_to", call.x, call.y)
                               : reduce<Sum>(cuda_context(context), "sum_to", call.x, call.y);
  }

  void run(KernelContext& context, const kernels::MaxTo& call) override {
    call.x.dtype == DType::i64 ? reduce<IntegerMax>(cuda_context(context), "max_to", call.x, call.y)
                               : reduce<Max>(cuda_context(context), "max_to", call.x, call.y);
  }

  void run(KernelContext& context, const kernels::Cumsum& call) override {
    if (call.x.numel() == 0) return;
    visit_number(call.x.dtype, "cumsum", [&](auto zero) {
      using T = decltype(zero);
      launch(cumsum_kernel<T>, blocks_for(call.x.shape[0] * call.x.shape[2]), dim3(kThreads), 0,
             cuda_context(context).stream(), call.reverse, call.x.as<T>(), call.y.as<T>(), call.x.shape[0],
             call.x.shape[1], call.x.shape[2]);
    });
  }

  void run(KernelContext& context, const kernels::Argmax& call) override {
    const std::int64_t rows = call.x.shape[0], k = call.x.shape[1];
    if (rows == 0) return;
    visit_number(call.x.dtype, "argmax", [&](auto zero) {
      using T = decltype(zero);
      launch(argmax_kernel<T>, blocks_for(rows * 32), dim3(kThreads), 0, cuda_context(context).stream(), call.x.as<T>(),
             call.y.as<std::int64_t>(), rows, k);
    });
  }

  void run(KernelContext& context, const kernels::Argsort& call) override {
    if (call.x.numel() == 0) return;
    visit_number(call.x.dtype, "argsort", [&](auto zero) {
      using T = decltype(zero);
      launch(argsort_kernel<T>, blocks_for(call.x.numel()), dim3(kThreads), 0, cuda_context(context).stream(),
             call.descending, call.x.as<T>(), call.y.as<std::int64_t>(), call.x.shape[0], call.x.shape[1]);
    });
  }

  void run(KernelContext& context, const kernels::TreeSum& call) override {
    check(std::ranges::any_of(call.leaves, [](const View& leaf) { return static_cast<bool>(leaf); }),
          "tree_sum: all {} leaves are missing", call.leaves.size());
    if (call.out.numel() == 0) return;
    call.out.dtype == DType::f64 ? tree_sum_as<double>(cuda_context(context), call.leaves, call.out)
                                 : tree_sum_as<float>(cuda_context(context), call.leaves, call.out);
  }

  void run(KernelContext& context, const kernels::SquaredNorm& call) override {
    const bool f64 = !call.xs.empty() && call.xs[0].dtype == DType::f64;
    f64 ? squared_norm_as<double>(cuda_context(context), call.xs, call.present, call.y)
        : squared_norm_as<float>(cuda_context(context), call.xs, call.present, call.y);
  }

 private:
  template <typename Visitor>
  static void visit_number(DType dtype, const char* what, const Visitor& visitor) {
    dtype == DType::i64 ? visitor(std::int64_t{}) : visit_floating(dtype, what, visitor);
  }

  template <typename Fold>
  static void reduce(CudaContext& ctx, const char* what, const View& x, const View& y) {
    if (y.numel() == 0) return;
    const SumPlan plan(x.shape, y.shape);
    using Total = typename Fold::Total;
    Total* partial = nullptr;
    unsigned* counters = nullptr;
    if (plan.blocks > 1) {
      check(plan.tiles <= CudaContext::kCounters, "{}: {} results of {} are too many", what, y.numel(), x.shape.str());
      partial = static_cast<Total*>(
          ctx.device_scratch(plan.blocks * static_cast<std::size_t>(plan.kept.count) * sizeof(Total)));
      counters = ctx.counters();
    }
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      launch(reduce_kernel<Fold, T>, dim3(plan.tiles, plan.blocks), dim3(kSumThreads), 0, ctx.stream(), plan, x.as<T>(),
             y.as<T>(), partial, counters);
    };
    if constexpr (std::is_same_v<Total, std::int64_t>) {
      run(std::int64_t{});
    } else {
      visit_floating(x.dtype, what, run);
    }
  }

  template <typename T>
  static void tree_sum_as(CudaContext& ctx, std::span<const View> leaves, const View& out) {
    const std::int64_t n = out.numel();
    std::vector<const T*> data;
    for (const View& leaf : leaves) data.push_back(leaf ? leaf.as<T>() : nullptr);
    // For more leaves than one launch takes, sum complete subtrees first, each into its own memory.
    if (data.size() > kMostLeaves) {
      const std::size_t chunks = ceil_div(data.size(), std::size_t{kMostLeaves});
      check(chunks <= kMostLeaves, "tree_sum: {} leaves are too many", leaves.size());
      const std::int64_t stride = ceil_div(n, kVectorBytes) * kVectorBytes;
      auto* next = static_cast<T*>(ctx.device_scratch(chunks * static_cast<std::size_t>(stride) * sizeof(T)));
      std::vector<const T*> sums;
      for (std::size_t k = 0; k < chunks; ++k, next += stride) {
        const std::size_t begin = k * kMostLeaves, end = std::min<std::size_t>(begin + kMostLeaves, data.size());
        const Leaves<T> chunk = leaves_of(&data[begin], &data[0] + end);
        const bool any = std::any_of(chunk.data, chunk.data + chunk.count, [](const T* p) { return p != nullptr; });
        if (any) launch_tree_sum(ctx, chunk, next, n);
        sums.push_back(any ? next : nullptr);
      }
      data = sums;
    }
    launch_tree_sum(ctx, leaves_of(&data[0], &data[0] + data.size()), out.as<T>(), n);
  }

  template <typename T>
  static Leaves<T> leaves_of(const T* const* begin, const T* const* end) {
    Leaves<T> leaves;
    leaves.count = static_cast<int>(end - begin);
    std::copy(begin, end, leaves.data);
    return leaves;
  }

  template <typename T>
  static void squared_norm_as(CudaContext& ctx, std::span<const View> xs, std::span<const View> present,
                              const View& y) {
    unsigned blocks = 1;
    for (const View& x : xs) blocks += static_cast<unsigned>(ceil_div(x.numel(), kChunk));
    auto* partial = static_cast<double*>(ctx.device_scratch(blocks * sizeof(double)));
    unsigned before = 0;
    TensorTable<Squared<T>> table;
    auto flush = [&](bool last) {
      const unsigned grid = std::max(table.blocks(), 1u);
      launch(squared_norm_kernel<T>, dim3(grid), dim3(kThreads), 0, ctx.stream(), table, partial, before, last,
             y.as<double>(), ctx.counters());
      before += grid;
      table = {};
    };
    for (std::size_t i = 0; i < xs.size(); ++i) {
      if (xs[i].numel() == 0) continue;
      if (table.full()) flush(false);
      const bool may_be_absent = !present.empty() && present[i];
      table.add({xs[i].as<T>(), may_be_absent ? present[i].as<std::uint8_t>() : nullptr, xs[i].numel()});
    }
    flush(true);
  }
};

}  // namespace reduce_cu

std::unique_ptr<ReduceKernels> make_cuda_reduce() { return std::make_unique<CudaReduce>(); }

}  // namespace lockstep
