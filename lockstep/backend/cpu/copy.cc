#include "lockstep/backend/copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/backend/walk.h"

namespace lockstep {
namespace {

using cpu::convert;

constexpr std::int64_t kElementsPerChunk = 16384;

// Converts a row that is contiguous on both sides.
template <typename To, typename From>
void convert_row(const From* x, To* y, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    // A memcpy call costs too much for short rows, such as those of an attention head.
    constexpr std::int64_t kPiece = 64 / sizeof(To);
    if (n > 8 * kPiece) {
      std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(To));
      return;
    }
    std::int64_t i = 0;
    for (; i + kPiece <= n; i += kPiece) std::memcpy(y + i, x + i, 64);
    for (; i < n; ++i) std::memcpy(y + i, x + i, sizeof(To));
  } else {
    cpu::vector_loop(0, n, [=](std::int64_t i) { y[i] = convert<To>(x[i]); });
  }
}

// y[i * y_stride + j] = x[i + j * x_stride] for i < rows, j < columns: one tile of a transposition.
template <typename To, typename From>
void transpose_tile(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride, std::int64_t rows,
                    std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) y[i * y_stride + j] = convert<To>(x[i + j * x_stride]);
  }
}

// Source and destination offsets over all axes except skip_a and skip_b, which may be equal, from element `i` on.
class Offsets {
 public:
  Offsets(const Walk& walk, std::int64_t i, int skip_a, int skip_b) {
    for (int axis = walk.dim - 1; axis >= 0; --axis) {
      if (axis == skip_a || axis == skip_b) continue;
      Axis& a = axes_[dim_++];
      a = {i % walk.extent[axis], walk.extent[axis], walk.stride[axis], walk.to[axis]};
      i /= walk.extent[axis];
      source += a.place * a.stride;
      destination += a.place * a.to;
    }
  }

  // Moves on without divisions, which would take longer than a short row.
  void advance() {
    for (int axis = 0; axis < dim_; ++axis) {
      Axis& a = axes_[axis];
      source += a.stride;
      destination += a.to;
      if (++a.place < a.extent) return;
      source -= a.extent * a.stride;
      destination -= a.extent * a.to;
      a.place = 0;
    }
  }

  std::int64_t source = 0, destination = 0;

 private:
  struct Axis {
    std::int64_t place, extent, stride, to;
  };
  Axis axes_[Shape::kMaxDim];  // last axis first
  int dim_ = 0;
};

// Calls row(x, y) with the first elements of every row along the last axis.
template <typename To, typename From, typename F>
void for_each_row(const KernelContext& ctx, const Walk& walk, const From* x, To* y, const F& row) {
  const int last = walk.dim - 1;
  const std::int64_t columns = walk.extent[last];
  parallel_for(ctx, walk.numel / columns, std::max<std::int64_t>(kElementsPerChunk / columns, 1),
               [&](std::int64_t begin, std::int64_t end) {
                 cpu::vectorized([&] {
                   Offsets o(walk, begin, last, last);
                   for (std::int64_t i = begin; i < end; ++i, o.advance()) row(x + o.source, y + o.destination);
                 });
               });
}

template <typename To, typename From>
void copy_walk(const KernelContext& ctx, const Walk& walk, const From* x, To* y) {
  if (walk.dim == 0) {
    *y = convert<To>(*x);
    return;
  }
  const int last = walk.dim - 1, inner = walk.contiguous_axis();
  const std::int64_t columns = walk.extent[last];
  if (walk.moves_rows()) {
    if (walk.dim == 1) {
      parallel_for(ctx, columns, kElementsPerChunk, [&](std::int64_t begin, std::int64_t end) {
        cpu::vectorized([&] { convert_row(x + begin, y + begin, end - begin); });
      });
    } else {
      for_each_row(ctx, walk, x, y, [columns](const From* u, To* v) { convert_row(u, v, columns); });
    }
  } else if (inner < 0) {
    for_each_row(ctx, walk, x, y, [columns, from = walk.stride[last], to = walk.to[last]](const From* u, To* v) {
      for (std::int64_t j = 0; j < columns; ++j) v[j * to] = convert<To>(u[j * from]);
    });
  } else {
    // Tiles of about two cache lines each way, so that lines of both sides are used completely while they are in the
    // cache.
    constexpr std::int64_t kTile = 32;
    const std::int64_t rows = walk.extent[inner], y_stride = walk.to[inner];
    const std::int64_t x_stride = walk.stride[last], strips = (rows + kTile - 1) / kTile;
    parallel_for(ctx, walk.numel / (rows * columns) * strips,
                 std::max(kElementsPerChunk / (kTile * columns), std::int64_t{1}),
                 [&](std::int64_t begin, std::int64_t end) {
                   cpu::vectorized([&] {
                     for (std::int64_t u = begin; u < end; ++u) {
                       const Offsets o(walk, u / strips, inner, last);
                       const std::int64_t i = u % strips * kTile;
                       for (std::int64_t j = 0; j < columns; j += kTile) {
                         transpose_tile(x + o.source + i + j * x_stride, x_stride, y + o.destination + i * y_stride + j,
                                        y_stride, std::min(kTile, rows - i), std::min(kTile, columns - j));
                       }
                     }
                   });
                 });
  }
}

// y = x, with one layout. Pairs without f32 are rare and use plain loops, which compile faster.
void convert_elements(const KernelContext& ctx, const View& x, const View& y) {
  visit_dtype(x.dtype, [&](auto from) {
    visit_dtype(y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      constexpr bool kVectors = std::is_same_v<From, float> || std::is_same_v<To, float>;
      if constexpr (std::is_same_v<From, Float16> || std::is_same_v<To, Float16> || std::is_same_v<From, To>) {
        fail("copy: no conversion of {} to {} here", name(x.dtype), name(y.dtype));
      } else {
        const auto convert_one = [in = x.as<From>(), out = y.as<To>()](std::int64_t i) { out[i] = convert<To>(in[i]); };
        if constexpr (kVectors) {
          cpu::parallel_vector_loop(ctx, x.numel(), convert_one);
        } else {
          parallel_for(ctx, x.numel(), kElementsPerChunk,
                       [&](std::int64_t begin, std::int64_t end) { cpu::vector_loop(begin, end, convert_one); });
        }
      }
    });
  });
}

class CpuCopy final : public CopyKernels {
 public:
  void run(KernelContext& ctx, const kernels::Copy& call) override {
    if (call.x.numel() == 0) return;
    const Walk walk = layout_walk(call.x, call.y);
    if (call.x.dtype == call.y.dtype) return move(ctx, walk, call.x, call.y);
    // Training in bf16 converts often, so these conversions take one pass.
    if (call.x.dtype == DType::f32 && call.y.dtype == DType::bf16)
      return copy_walk(ctx, walk, call.x.as<float>(), call.y.as<BFloat16>());
    if (call.x.dtype == DType::bf16 && call.y.dtype == DType::f32)
      return copy_walk(ctx, walk, call.x.as<BFloat16>(), call.y.as<float>());
    if (walk.dim <= 1) return convert_elements(ctx, call.x, call.y);
    View converted{ctx.scratch.get(call.y.bytes()), call.y.dtype, call.x.layout, call.y.shape};
    convert_elements(ctx, call.x, converted);
    move(ctx, walk, converted, call.y);
  }

  void run(KernelContext& ctx, const kernels::CopyStrided& call) override {
    if (call.copy.extent.numel() == 0) return;
    cpu::visit_bits(call.x.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      copy_walk(ctx, strided_walk(call.copy), static_cast<const Bits*>(call.x.data) + call.copy.from_first,
                static_cast<Bits*>(call.y.data) + call.copy.to_first);
    });
  }

 private:
  static void move(const KernelContext& ctx, const Walk& walk, const View& x, const View& y) {
    cpu::visit_bits(x.dtype, [&](auto bits) {
      copy_walk(ctx, walk, static_cast<const decltype(bits)*>(x.data), static_cast<decltype(bits)*>(y.data));
    });
  }
};

}  // namespace

std::unique_ptr<CopyKernels> make_cpu_copy() { return std::make_unique<CpuCopy>(); }

}  // namespace lockstep
