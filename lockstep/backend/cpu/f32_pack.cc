#include "lockstep/backend/cpu/f32_pack.h"

#include <algorithm>
#include <cstring>

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/parallel_for.h"
#include "lockstep/backend/cpu/transpose.h"
#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

// Packs a whole tile of f32 weights, the usual case. Returns false in other cases.
bool pack_whole(const Weights& w, std::int64_t column, std::int64_t term, float* packed) {
  if (w.dtype != DType::f32 || w.rounded != DType::f32 || column + kTileColumns > w.columns || term + kBlock > w.terms)
    return false;
  const float* const in = static_cast<const float*>(w.data) + term * w.term_stride + column * w.column_stride;
  if (w.taps == 1 && w.column_stride == 1) {
    for (std::int64_t i = 0; i < kBlock; ++i)
      std::memcpy(packed + i * kTileColumns, in + i * w.term_stride, kTileColumns * sizeof(float));
    return true;
  }
  // The 16 terms of a column and their taps are contiguous.
  if (w.term_stride == w.taps) {
    const std::int64_t taps = w.taps;
    for (std::int64_t j = 0; j < kTileColumns; j += 4) {
      // Prefetch the next terms: the processor's prefetcher cannot follow as many streams as there are columns.
      for (std::int64_t i = j; i < j + 4; ++i) __builtin_prefetch(in + i * w.column_stride + 2 * kBlock * taps);
      for (std::int64_t k = 0; k < kBlock * taps; k += 4) {
        float four[16];
        float* const to = taps == 1 ? packed + k * kTileColumns + j : four;
        transpose4(in + j * w.column_stride + k, w.column_stride, to, taps == 1 ? kTileColumns : 4);
        if (taps == 1) continue;
        for (std::int64_t i = 0; i < 4; ++i) {
          const std::int64_t t = (k + i) % taps, term_in_block = (k + i) / taps;
          std::memcpy(packed + (t * kBlock + term_in_block) * kTileColumns + j, four + 4 * i, 4 * sizeof(float));
        }
      }
    }
    return true;
  }
  return false;
}

template <typename From, typename Rounded>
void pack_elements(const Weights& w, std::int64_t column, std::int64_t term, float* packed) {
  const std::int64_t width = std::min(kTileColumns, w.columns - column), height = std::min(kBlock, w.terms - term);
  if (width < kTileColumns) std::fill_n(packed, w.taps * height * kTileColumns, 0.f);
  const From* const in = static_cast<const From*>(w.data) + term * w.term_stride + column * w.column_stride;
  const auto element = [&](std::int64_t i, std::int64_t j, std::int64_t t) {
    packed[(t * height + i) * kTileColumns + j] =
        static_cast<float>(Rounded(static_cast<float>(in[i * w.term_stride + j * w.column_stride + t])));
  };
  // Follow the order of the source, which may lie in main memory; a packed tap fits in the first-level cache.
  const bool by_columns = w.term_stride < w.column_stride;
  const std::int64_t outer = by_columns ? width : height, inner = by_columns ? height : width;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      for (std::int64_t t = 0; t < w.taps; ++t) element(by_columns ? j : i, by_columns ? i : j, t);
    }
  }
}

}  // namespace

Weights Weights::part(std::int64_t column, std::int64_t count, std::int64_t term, std::int64_t term_count) const {
  Weights w = *this;
  w.data = static_cast<const std::byte*>(data) +
           static_cast<std::size_t>(term * term_stride + column * column_stride) * item_size(dtype);
  w.columns = count, w.terms = term_count;
  return w;
}

void pack_terms(const Weights& w, std::int64_t tile, std::int64_t term_block, float* packed) {
  const std::int64_t column = tile * kTileColumns, term = term_block * kBlock;
  if (pack_whole(w, column, term, packed)) return;
  if (w.dtype == DType::bf16) return pack_elements<BFloat16, float>(w, column, term, packed);
  if (w.dtype == DType::f16) return pack_elements<Float16, float>(w, column, term, packed);
  check(w.dtype == DType::f32, "cpu: no f32 kernels for weights of {}", name(w.dtype));
  if (w.rounded == DType::bf16) return pack_elements<float, BFloat16>(w, column, term, packed);
  if (w.rounded == DType::f16) return pack_elements<float, Float16>(w, column, term, packed);
  pack_elements<float, float>(w, column, term, packed);
}

void pack(const KernelContext& context, const Weights& w, float* packed) {
  const std::int64_t tiles = w.tiles(), blocks = w.term_blocks();
  const bool by_terms = w.column_stride == 1;  // the order of the weights' memory
  parallel_for(context, tiles * blocks, 1, [&](std::int64_t unit, std::int64_t) {
    const std::int64_t tile = by_terms ? unit % tiles : unit / blocks, block = by_terms ? unit / tiles : unit % blocks;
    pack_terms(w, tile, block, packed + (tile * blocks + block) * w.taps * kTap);
  });
}

}  // namespace lockstep::cpu
