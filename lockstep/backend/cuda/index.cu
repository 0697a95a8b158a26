#include "lockstep/backend/index.h"

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/report.cuh"

namespace lockstep {
inline namespace index_cu {

using namespace cuda;

// Strides to find index[a, i, b].
struct Numbers {
  const std::int64_t* data;
  std::int64_t outer, along, inner;

  explicit Numbers(const View& index)
      : data(index.as<std::int64_t>()), outer(index.shape[0] == 1 ? 0 : index.shape[1] * index.shape[2]),
        along(index.shape[2]), inner(index.shape[2] == 1 ? 0 : 1) {}
  __device__ std::int64_t place(std::int64_t a, std::int64_t i, std::int64_t b) const {
    return a * outer + i * along + b * inner;
  }
};

// Each thread moves one unit: an element, or several adjacent ones with one index.
template <typename Unit>
__global__ void take_kernel(const Unit* x, const __grid_constant__ Numbers index, Unit* y, std::int64_t outer,
                            std::int64_t m, std::int64_t n, std::int64_t inner, ErrorSlot* errors) {
  const std::int64_t i = thread_number();
  if (i >= outer * n * inner) return;
  const std::int64_t row = i / inner, b = i % inner, a = row / n, place = index.place(a, row % n, b),
                     j = index.data[place];
  if (j >= 0 && j < m) {
    y[i] = x[(a * m + j) * inner + b];
  } else {
    report(errors, DataError::index_out_of_range, place, j, m);
  }
}

// One thread per column [a, :, b]; it adds in the order of the index.
template <typename T>
__global__ void scatter_sum_kernel(const T* x, const __grid_constant__ Numbers index, Compute<T>* sums,
                                   std::int64_t outer, std::int64_t n, std::int64_t m, std::int64_t inner,
                                   ErrorSlot* errors) {
  const std::int64_t column = thread_number();
  if (column >= outer * inner) return;
  const std::int64_t a = column / inner, b = column % inner;
  Compute<T>* out = sums + a * m * inner + b;
  for (std::int64_t j = 0; j < m; ++j) out[j * inner] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t place = index.place(a, i, b), j = index.data[place];
    if (j >= 0 && j < m) {
      out[j * inner] += widened(x[(a * n + i) * inner + b]);
    } else {
      report(errors, DataError::index_out_of_range, place, j, m);
    }
  }
}

// One thread per column [a, :, b], in the order of the index.
template <typename Bits>
__global__ void scatter_kernel(const Bits* x, const __grid_constant__ Numbers index, Bits* y, std::int64_t outer,
                               std::int64_t n, std::int64_t m, std::int64_t inner, ErrorSlot* errors) {
  const std::int64_t column = thread_number();
  if (column >= outer * inner) return;
  const std::int64_t a = column / inner, b = column % inner;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t place = index.place(a, i, b), j = index.data[place];
    if (j >= 0 && j < m) {
      y[(a * m + j) * inner + b] = x[(a * n + i) * inner + b];
    } else {
      report(errors, DataError::index_out_of_range, place, j, m);
    }
  }
}

template <typename T>
__global__ void narrow_kernel(const Compute<T>* x, T* y, std::int64_t n) {
  const std::int64_t i = thread_number();
  if (i < n) y[i] = convert<T>(x[i]);
}

class CudaIndex final : public IndexKernels {
 public:
  void run(KernelContext& context, const kernels::Take& call) override {
    if (call.y.numel() == 0) return;
    CudaContext& ctx = cuda_context(context);
    const auto run = [&](auto unit, std::int64_t inner) {
      using Unit = decltype(unit);
      launch(take_kernel<Unit>, blocks_for(call.y.shape[0] * call.y.shape[1] * inner), dim3(kThreads), 0, ctx.stream(),
             static_cast<const Unit*>(call.x.data), Numbers(call.index), static_cast<Unit*>(call.y.data),
             call.y.shape[0], call.x.shape[1], call.y.shape[1], inner, ctx.errors());
    };
    const std::int64_t bytes = call.y.shape[2] * static_cast<std::int64_t>(item_size(call.x.dtype));
    if (call.index.shape[2] == 1 && bytes % kVectorBytes == 0 && all_aligned(call.x.data, call.y.data))
      return run(uint4{}, bytes / kVectorBytes);
    visit_bits(call.x.dtype, [&](auto bits) { run(bits, call.y.shape[2]); });
  }

  void run(KernelContext& context, const kernels::ScatterSum& call) override {
    const std::int64_t numel = call.y.numel();
    if (numel == 0) return;
    CudaContext& ctx = cuda_context(context);
    visit_floating(call.y.dtype, "scatter_add", [&](auto zero) {
      using T = decltype(zero);
      using Sum = Compute<T>;
      Sum* sums = nullptr;
      if constexpr (is_half<T>) {
        sums = static_cast<Sum*>(ctx.device_scratch(static_cast<std::size_t>(numel) * sizeof(Sum)));
      } else {
        sums = call.y.as<T>();
      }
      launch(scatter_sum_kernel<T>, blocks_for(call.x.shape[0] * call.x.shape[2]), dim3(kThreads), 0, ctx.stream(),
             call.x.as<T>(), Numbers(call.index), sums, call.x.shape[0], call.x.shape[1], call.y.shape[1],
             call.x.shape[2], ctx.errors());
      if constexpr (is_half<T>) {
        launch(narrow_kernel<T>, blocks_for(numel), dim3(kThreads), 0, ctx.stream(), sums, call.y.as<T>(), numel);
      }
    });
  }

  void run(KernelContext& context, const kernels::Scatter& call) override {
    if (call.x.numel() == 0) return;
    CudaContext& ctx = cuda_context(context);
    visit_bits(call.x.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      launch(scatter_kernel<Bits>, blocks_for(call.x.shape[0] * call.x.shape[2]), dim3(kThreads), 0, ctx.stream(),
             static_cast<const Bits*>(call.x.data), Numbers(call.index), static_cast<Bits*>(call.y.data),
             call.x.shape[0], call.x.shape[1], call.y.shape[1], call.x.shape[2], ctx.errors());
    });
  }
};

}  // namespace index_cu

std::unique_ptr<IndexKernels> make_cuda_index() { return std::make_unique<CudaIndex>(); }

}  // namespace lockstep
