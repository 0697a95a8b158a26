// Transposes f32 matrices, four rows of four at a time in registers.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {

// to[i * to_row + j] = from[j * from_row + i] for i, j < 4.
inline void transpose4(const float* from, std::int64_t from_row, float* to, std::int64_t to_row) {
  typedef float F32x4 __attribute__((vector_size(16), aligned(4), may_alias));
  typedef std::int32_t Index __attribute__((vector_size(16)));
  const auto row = [&](std::int64_t i) { return *reinterpret_cast<const F32x4*>(from + i * from_row); };
  const F32x4 a = row(0), b = row(1), c = row(2), d = row(3);
  const F32x4 ab_low = __builtin_shuffle(a, b, Index{0, 4, 1, 5}), ab_high = __builtin_shuffle(a, b, Index{2, 6, 3, 7});
  const F32x4 cd_low = __builtin_shuffle(c, d, Index{0, 4, 1, 5}), cd_high = __builtin_shuffle(c, d, Index{2, 6, 3, 7});
  const auto store = [&](std::int64_t i, F32x4 v) { *reinterpret_cast<F32x4*>(to + i * to_row) = v; };
  store(0, __builtin_shuffle(ab_low, cd_low, Index{0, 1, 4, 5}));
  store(1, __builtin_shuffle(ab_low, cd_low, Index{2, 3, 6, 7}));
  store(2, __builtin_shuffle(ab_high, cd_high, Index{0, 1, 4, 5}));
  store(3, __builtin_shuffle(ab_high, cd_high, Index{2, 3, 6, 7}));
}

// to[i * to_row + j] = from[j * from_row + i] for j < rows and i < columns.
inline void transpose(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns, float* to,
                      std::int64_t to_row) {
  if (rows < 4 || columns < 4) {
    for (std::int64_t i = 0; i < columns; ++i) {
      for (std::int64_t j = 0; j < rows; ++j) to[i * to_row + j] = from[j * from_row + i];
    }
    return;
  }
  // The last squares overlap those before them.
  for (std::int64_t j = 0; j < rows; j += 4) {
    const std::int64_t row = std::min(j, rows - 4);
    for (std::int64_t i = 0; i < columns; i += 4) {
      const std::int64_t column = std::min(i, columns - 4);
      transpose4(from + row * from_row + column, from_row, to + column * to_row + row, to_row);
    }
  }
}

}  // namespace lockstep::cpu
