// Weights in the order that row_product and column_product read: by tile of columns; in a tile by block of 16 terms of
// the sum, then by tap, then by term. A tap of a block is 16 rows of the tile's columns; in the last block, it has as
// many rows as terms are left. Columns past the last one are 0.
#pragma once

#include <cstdint>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

inline constexpr std::int64_t kTap = kBlock * kTileColumns;

// A matrix of `terms` rows and `columns` columns, each of whose elements is `taps` values side by side.
struct Weights {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t terms = 0, columns = 0, taps = 1;
  std::int64_t term_stride = 0, column_stride = 0;
  // The type to which packing rounds.
  DType rounded = DType::f32;

  std::int64_t tiles() const { return (columns + kTileColumns - 1) / kTileColumns; }
  std::int64_t term_blocks() const { return (terms + kBlock - 1) / kBlock; }
  // The sizes of a packed tile and of all packed tiles, in f32.
  std::int64_t tile_size() const { return term_blocks() * taps * kTap; }
  std::int64_t packed_size() const { return tiles() * tile_size(); }
  // Returns terms [term, term + term_count) of columns [column, column + count).
  Weights part(std::int64_t column, std::int64_t count, std::int64_t term, std::int64_t term_count) const;
};

// Packs 16 terms of a tile, all taps, into taps * kTap elements.
void pack_terms(const Weights& w, std::int64_t tile, std::int64_t term_block, float* packed);
// Packs all tiles.
void pack(const KernelContext& context, const Weights& w, float* packed);

}  // namespace lockstep::cpu
