// Elements in kernels, one or several at a time. f32, bf16, and f16 are computed in f32, f64 in f64, and i64 in i64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "lockstep/backend/cuda/cuda_context.h"
#include "lockstep/backend/cuda/launch.h"
#include "lockstep/tensor/view.h"

namespace lockstep::cuda {

template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>, T, float>;

// Bytes per access.
inline constexpr int kVectorBytes = 16;
// Elements per thread. One for f64, which need not be fast and whose code is long.
template <typename T>
inline constexpr int kVector = std::is_same_v<T, double> ? 1 : kVectorBytes / static_cast<int>(sizeof(T));

template <typename T, int N>
struct alignas(std::min<std::size_t>(sizeof(T) * N, kVectorBytes)) Vector {
  T at[N];
};

// Rounds in one instruction. NaNs get other bits than in the constructors of BFloat16 and Float16.
template <typename T>
__device__ inline T to_half(float x) {
#ifdef __CUDA_ARCH__
  T y;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  } else {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  }
  return y;
#else
  return T(x);
#endif
}

__device__ inline float to_float(BFloat16 x) { return static_cast<float>(x); }
__device__ inline float to_float(Float16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  return static_cast<float>(x);
#endif
}

// Converts between any two element types: to and from bf16 and f16 through f32; floating to integer truncates.
template <typename To, typename From>
__device__ inline To convert(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (is_half<From> && is_half<To>) {
    return to_half<To>(to_float(x));
  } else if constexpr (is_half<From>) {
    return static_cast<To>(to_float(x));
  } else if constexpr (is_half<To>) {
    return to_half<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <typename T>
__device__ inline Compute<T> widened(T x) {
  return convert<Compute<T>>(x);
}

// Loads N elements from p. `aligned`: p is aligned for vectors, so vector instructions can load them.
template <int N, typename T>
__device__ inline Vector<T, N> load(const T* p, bool aligned) {
  if (aligned) return *reinterpret_cast<const Vector<T, N>*>(p);
  Vector<T, N> v;
#pragma unroll
  for (int k = 0; k < N; ++k) v.at[k] = p[k];
  return v;
}

template <int N, typename T>
__device__ inline void store(T* p, const Vector<T, N>& v, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Vector<T, N>*>(p) = v;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) p[k] = v.at[k];
}

// Rounds every element to T.
template <typename T, int N>
__device__ inline Vector<T, N> narrowed(const Vector<Compute<T>, N>& x) {
  Vector<T, N> y;
#ifdef __CUDA_ARCH__
  constexpr bool kInPairs = is_half<T> && N % 2 == 0;  // two in one instruction
#else
  constexpr bool kInPairs = false;
#endif
  if constexpr (kInPairs) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      std::uint32_t& pair = reinterpret_cast<std::uint32_t*>(y.at)[k / 2];
      if constexpr (std::is_same_v<T, BFloat16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.at[k + 1]), "f"(x.at[k]));
      } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.at[k + 1]), "f"(x.at[k]));
      }
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) y.at[k] = convert<T>(x.at[k]);
  }
  return y;
}

inline bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % kVectorBytes == 0; }
template <typename... Pointers>
bool all_aligned(const Pointers*... p) {
  return (aligned(p) && ...);
}

inline constexpr int kThreads = 256;
template <typename Integer>
__host__ __device__ constexpr Integer ceil_div(Integer a, std::type_identity_t<Integer> b) {
  return (a + b - 1) / b;
}
// The most blocks of a grid, along x and along y.
inline constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
inline constexpr int kMostBlocksAlongY = 65535;
// Returns the number of blocks of kThreads threads for this many threads.
inline dim3 blocks_for(std::int64_t threads) {
  const std::int64_t blocks = ceil_div(threads, kThreads);
  check(blocks <= kMostBlocks, "a kernel of {} threads is too large, a GPU runs at most {}", threads,
        kMostBlocks * kThreads);
  return dim3(static_cast<unsigned>(blocks));
}
__device__ inline std::int64_t thread_number() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Calls visitor with an element of a floating dtype; any other dtype is an error that names `operation`.
template <typename Visitor>
void visit_floating(DType dtype, const char* operation, const Visitor& visitor) {
  switch (dtype) {
    case DType::f32: return visitor(float{});
    case DType::bf16: return visitor(BFloat16{});
    case DType::f16: return visitor(Float16{});
    case DType::f64: return visitor(double{});
    default: fail("{}: elements are {}, expected a floating dtype", operation, name(dtype));
  }
}

// Calls visitor with an unsigned integer of `dtype`'s size, to move elements without conversion.
template <typename Visitor>
void visit_bits(DType dtype, const Visitor& visitor) {
  switch (item_size(dtype)) {
    case 1: return visitor(std::uint8_t{});
    case 2: return visitor(std::uint16_t{});
    case 4: return visitor(std::uint32_t{});
    default: return visitor(std::uint64_t{});
  }
}

}  // namespace lockstep::cuda
