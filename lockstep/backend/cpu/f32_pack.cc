#include "lockstep/backend/cpu/f32_pack.h"

#include <algorithm>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

template <typename From, typename Rounded>
void pack(const Weights& w, std::int64_t column, std::int64_t term, float* packed) {
  const std::int64_t width = std::min(kTileColumns, w.columns - column), height = std::min(kBlock, w.terms - term);
  if (width < kTileColumns || height < kBlock) std::fill_n(packed, w.taps * kTap, 0.f);
  const From* const in = static_cast<const From*>(w.data) + term * w.term_stride + column * w.column_stride;
  const auto element = [&](std::int64_t i, std::int64_t j, std::int64_t t) {
    packed[(t * kBlock + i) * kTileColumns + j] =
        static_cast<float>(Rounded(static_cast<float>(in[i * w.term_stride + j * w.column_stride + t])));
  };
  // In the order of the source's memory: it may lie in main memory, and a packed tap in the first-level cache.
  if (w.term_stride < w.column_stride) {
    for (std::int64_t j = 0; j < width; ++j) {
      for (std::int64_t i = 0; i < height; ++i) {
        for (std::int64_t t = 0; t < w.taps; ++t) element(i, j, t);
      }
    }
  } else {
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        for (std::int64_t t = 0; t < w.taps; ++t) element(i, j, t);
      }
    }
  }
}

}  // namespace

void pack_terms(const Weights& w, std::int64_t tile, std::int64_t term_block, float* packed) {
  const std::int64_t column = tile * kTileColumns, term = term_block * kBlock;
  if (w.dtype == DType::bf16) return pack<BFloat16, float>(w, column, term, packed);
  if (w.dtype == DType::f16) return pack<Float16, float>(w, column, term, packed);
  check(w.dtype == DType::f32, "cpu: no f32 kernels for weights of {}", name(w.dtype));
  if (w.rounded == DType::bf16) return pack<float, BFloat16>(w, column, term, packed);
  if (w.rounded == DType::f16) return pack<float, Float16>(w, column, term, packed);
  pack<float, float>(w, column, term, packed);
}

}  // namespace lockstep::cpu
