// The two loops to which convolutions and matrix products in f32 come down, and the transforms of Winograd's algorithm,
// compiled for each set of instructions. All of them give the same bits: the order of every sum is that of the arguments,
// every product is fused into its sum, and how many rows a register tile holds decides nothing.
#pragma once

#include <cstdint>

namespace lockstep::cpu {

// Offsets and distances are in elements. A block is 16 columns, the width of F32x16; a tile is two blocks.
inline constexpr std::int64_t kBlock = 16, kTileColumns = 2 * kBlock;

// Where a run of up to 16 terms of a sum begins: in a row of x, and in the packed weights of a tile.
struct Step {
  std::int64_t x, w;
};

// y[r, j] = sum over steps s, then terms c, of x[x_rows[r] + s.x + c] * w[s.w + 32 c + j], for each row r and each of the 16
// or 32 columns j of a tile. The sum starts from zero; with `accumulate`, what y held is added to it; then `bias`, if any.
struct RowProduct {
  const float* x = nullptr;
  const std::int64_t* x_rows = nullptr;
  float* y = nullptr;
  const std::int64_t* y_rows = nullptr;
  std::int64_t rows = 0;
  std::int64_t y_block = 0;  // from the first block of y to the second
  const Step* steps = nullptr;
  std::int64_t step_count = 0;
  std::int64_t terms = 0;  // of each step, at most 16
  const float* w = nullptr;
  std::int64_t blocks = 0;  // 1 or 2
  bool accumulate = false;
  const float* bias = nullptr;  // one for each column, or null
};

// Where a pixel is in x and in y.
struct PixelPair {
  std::int64_t x, y;
};

// d[i, j] = sum over pixels p of x[rows[i] + p.x] * y[p.y + j], for each row i and each of the 16 or 32 columns j of a tile.
// The sum starts from zero; with `accumulate`, it is added to what d held.
struct PixelProduct {
  const float* x = nullptr;
  const std::int64_t* rows = nullptr;  // null: rows[i] = i
  std::int64_t row_count = 0;
  const float* y = nullptr;
  std::int64_t y_block = 0;
  std::int64_t blocks = 0;  // 1 or 2
  const PixelPair* pixels = nullptr;
  std::int64_t pixel_count = 0;
  float* d = nullptr;
  std::int64_t d_row = kBlock;  // from a row of d to the next
  std::int64_t d_block = 0;
  bool accumulate = false;
};

struct F32Kernels {
  void (*row_product)(const RowProduct&);
  void (*pixel_product)(const PixelProduct&);
};

// For the instructions that simd() names.
const F32Kernels& f32_kernels();

}  // namespace lockstep::cpu
