#include "lockstep/backend/copy.h"

#include "lockstep/backend/cuda/element.cuh"
#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/walk.h"

namespace lockstep {
inline namespace copy_cu {

using namespace cuda;

// Elements per thread if both sides are contiguous: 16 bytes on the wider side.
template <typename To, typename From>
inline constexpr int kWidth = kVectorBytes / static_cast<int>(std::max(sizeof(To), sizeof(From)));

template <typename To, typename From>
__global__ void convert_kernel(const From* x, To* y, std::int64_t n, bool aligned) {
  constexpr int kCount = kWidth<To, From>;
  const std::int64_t i = thread_number() * kCount;
  if (i + kCount <= n) {
    const auto in = load<kCount>(x + i, aligned);
    Vector<To, kCount> out;
#pragma unroll
    for (int k = 0; k < kCount; ++k) out.at[k] = convert<To>(in.at[k]);
    store(y + i, out, aligned);
  } else {
    for (std::int64_t k = i; k < n; ++k) y[k] = convert<To>(x[k]);
  }
}

// For walks that are not transpositions. Each thread writes one element.
template <typename To, typename From>
__global__ void gather_kernel(const __grid_constant__ Walk walk, const From* x, To* y) {
  const std::int64_t i = thread_number();
  if (i >= walk.numel) return;
  std::int64_t rest = i, source = 0, destination = 0;
  for (int axis = walk.dim - 1; axis >= 0; --axis) {
    const std::int64_t place = rest % walk.extent[axis];
    rest /= walk.extent[axis];
    source += place * walk.stride[axis];
    destination += place * walk.to[axis];
  }
  y[destination] = convert<To>(x[source]);
}

constexpr int kTile = 32, kTileRows = 8;

// y[i * y_stride + j] = x[i + j * x_stride] in tiles that pass through shared memory, so that both sides are accessed
// along their contiguous axes. The other axes of the walk are spread over blocks.
struct Transposition {
  std::int64_t rows, columns, x_stride, y_stride;
  int row_tiles, column_tiles;
  int others = 0;
  std::int64_t extent[Shape::kMaxDim] = {}, source[Shape::kMaxDim] = {}, destination[Shape::kMaxDim] = {};

  Transposition(const Walk& walk, int inner)
      : rows(walk.extent[inner]), columns(walk.extent[walk.dim - 1]), x_stride(walk.stride[walk.dim - 1]),
        y_stride(walk.to[inner]), row_tiles(static_cast<int>(ceil_div(rows, kTile))),
        column_tiles(static_cast<int>(ceil_div(columns, kTile))) {
    for (int axis = walk.dim - 2; axis >= 0; --axis) {
      if (axis == inner) continue;
      extent[others] = walk.extent[axis];
      source[others] = walk.stride[axis];
      destination[others++] = walk.to[axis];
    }
  }
};

template <typename To, typename From>
__global__ void transpose_kernel(const __grid_constant__ Transposition t, const From* x, To* y) {
  __shared__ From tile[kTile][kTile + 1];
  std::int64_t block = blockIdx.x;
  const std::int64_t j0 = block % t.column_tiles * kTile;
  block /= t.column_tiles;
  const std::int64_t i0 = block % t.row_tiles * kTile;
  block /= t.row_tiles;
  for (int k = 0; k < t.others; ++k) {
    x += block % t.extent[k] * t.source[k];
    y += block % t.extent[k] * t.destination[k];
    block /= t.extent[k];
  }
  const int lane = static_cast<int>(threadIdx.x);
  for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
    if (i0 + lane < t.rows && j0 + k < t.columns) tile[k][lane] = x[i0 + lane + (j0 + k) * t.x_stride];
  }
  __syncthreads();
  for (int k = static_cast<int>(threadIdx.y); k < kTile; k += kTileRows) {
    if (i0 + k < t.rows && j0 + lane < t.columns) {
      y[(i0 + k) * t.y_stride + j0 + lane] = convert<To>(tile[lane][k]);
    }
  }
}

template <typename To, typename From>
void copy_walk(CudaContext& ctx, const Walk& walk, const From* x, To* y) {
  // Integers rarely change type and layout at once, so they have no transposition of their own.
  constexpr bool kIsCommon = std::is_same_v<To, From> || !(std::is_integral_v<To> || std::is_integral_v<From>);
  const int inner = walk.contiguous_axis();
  if (walk.dim <= 1 && walk.moves_rows()) {
    launch(convert_kernel<To, From>, blocks_for(ceil_div(walk.numel, kWidth<To, From>)), dim3(kThreads), 0,
           ctx.stream(), x, y, walk.numel, all_aligned(x, y));
    return;
  }
  if constexpr (kIsCommon) {
    if (inner >= 0) {
      const Transposition t(walk, inner);
      const std::int64_t blocks = walk.numel / (t.rows * t.columns) * t.row_tiles * t.column_tiles;
      if (blocks <= kMostBlocks) {  // many small matrices have more
        launch(transpose_kernel<To, From>, dim3(static_cast<unsigned>(blocks)), dim3(kTile, kTileRows), 0, ctx.stream(),
               t, x, y);
        return;
      }
    }
  }
  launch(gather_kernel<To, From>, blocks_for(walk.numel), dim3(kThreads), 0, ctx.stream(), walk, x, y);
}

class CudaCopy final : public CopyKernels {
 public:
  void run(KernelContext& context, const kernels::Copy& call) override {
    if (call.x.numel() == 0) return;
    CudaContext& ctx = cuda_context(context);
    const Walk walk = layout_walk(call.x, call.y);
    if (call.x.dtype == call.y.dtype) return move(ctx, walk, call.x, 0, call.y, 0);
    visit_dtype(call.x.dtype, [&](auto from) {
      visit_dtype(call.y.dtype, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        if constexpr (!std::is_same_v<To, From>) copy_walk(ctx, walk, call.x.as<From>(), call.y.as<To>());
      });
    });
  }

  void run(KernelContext& ctx, const kernels::CopyStrided& call) override {
    if (call.copy.extent.numel() == 0) return;
    move(cuda_context(ctx), strided_walk(call.copy), call.x, call.copy.from_first, call.y, call.copy.to_first);
  }

 private:
  // Moves elements without conversion.
  static void move(CudaContext& ctx, const Walk& walk, const View& x, std::int64_t from, const View& y,
                   std::int64_t to) {
    visit_bits(x.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      copy_walk(ctx, walk, static_cast<const Bits*>(x.data) + from, static_cast<Bits*>(y.data) + to);
    });
  }
};

}  // namespace copy_cu

std::unique_ptr<CopyKernels> make_cuda_copy() { return std::make_unique<CudaCopy>(); }

}  // namespace lockstep
