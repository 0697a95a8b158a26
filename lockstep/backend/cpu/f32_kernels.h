// The three loops behind all f32 convolutions and matrix products, and the transforms of Winograd's algorithm, compiled
// for each instruction set. All of them give the same bits: sums follow the order of the arguments, every product is
// fused into its sum, and the number of rows in a register tile does not matter.
#pragma once

#include <cstdint>

#include "lockstep/backend/cpu/cpu_features.h"

namespace lockstep::cpu {

// Offsets and distances are in elements. A block is 16 columns, the width of F32x16; a tile is two blocks.
inline constexpr std::int64_t kBlock = 16, kTileColumns = 2 * kBlock;

// Offsets at which a run of a sum's terms begins: in a row of x, and in the packed weights of a tile.
struct Step {
  std::int64_t x, w;
};

// y[r, j] = sum over steps s, then terms c, of x[x_rows[r] + s.x + c] * w[s.w + 32 c + j], for each row r and each of
// the 16 or 32 columns j of a tile. The sum starts from zero; with `accumulate`, the old y is added to it, then `bias`,
// if any.
struct RowProduct {
  const float* x = nullptr;
  const std::int64_t* x_rows = nullptr;
  float* y = nullptr;
  const std::int64_t* y_rows = nullptr;
  std::int64_t rows = 0;
  std::int64_t y_block = 0;  // from the first block of y to the second
  const Step* steps = nullptr;
  std::int64_t step_count = 0;
  std::int64_t terms = 0;  // per step
  const float* w = nullptr;
  std::int64_t blocks = 0;  // 1 or 2
  // Distance from w to the weights of the next call, which are prefetched into the second-level cache if steps have 16
  // terms. 0: none.
  std::int64_t ahead = 0;
  bool accumulate = false;
  const float* bias = nullptr;  // one for each column, or null
  std::int64_t x_block = 0;     // for column_product: from the first block of x to the second
};

// The offsets of a pixel in x and in y.
struct PixelPair {
  std::int64_t x, y;
};

// d[i, j] = sum over pixels p of x[p.x + i] * y[p.y + j], for each row i and each of the 16 or 32 columns j of a tile.
// The sum starts from zero; with `accumulate`, it is added to the old d.
struct PixelProduct {
  const float* x = nullptr;
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

// Winograd's algorithm, F(4 x 4, 3 x 3), computes tiles of 4 x 4 outputs from 6 x 6 inputs. The transform of such a
// tile, or of a kernel of 3 x 3 taps, has 6 x 6 elements, its frequencies.
inline constexpr std::int64_t kWinogradTile = 4, kWinogradFrequencies = 36;

// Tiles of images. Tile (r, c) of an image is the square of pixels that begins at row 4 r - row_padding and column 4 c
// - column_padding. Frequency f of tile t has 16 channels of block b at f * frequency + b * transformed_block + 16 t.
struct WinogradPatches {
  float* images = nullptr;  // 16 channels of a pixel side by side
  std::int64_t image = 0, block = 0, row = 0, pixel = 0;
  std::int64_t rows = 0, columns = 0;  // of an image
  std::int64_t row_padding = 0, column_padding = 0;
  std::int64_t tile_rows = 0, tile_columns = 0;  // of an image
  std::int64_t first = 0, count = 0;             // tiles, counted across all images
  std::int64_t blocks = 0;
  float* transformed = nullptr;
  std::int64_t frequency = 0, transformed_block = 0;
  const float* bias = nullptr;  // added to outputs: one for each channel, or null
};

// `count` kernels of 3 x 3 taps, a multiple of 16, side by side. `turned`: tap 8 - t replaces tap t.
struct WinogradWeights {
  float* taps = nullptr;
  std::int64_t tap = 0;
  float* transformed = nullptr;
  std::int64_t frequency = 0;
  std::int64_t count = 0;
  bool turned = false;
  // Bypasses the caches when writing, for weights that would not fit. The destination must then be aligned to 64 bytes.
  bool past_caches = false;
};

struct F32Kernels {
  void (*row_product)(const RowProduct&);
  // Like row_product with one term per step, but each column has factors of its own: x[x_rows[r] + s.x + j] * w[s.w +
  // j]. The second block of x lies x_block after the first. Ignores terms and ahead.
  void (*column_product)(const RowProduct&);
  void (*pixel_product)(const PixelProduct&);
  void (*winograd_input)(const WinogradPatches&);  // 6 x 6 pixels of each tile -> transformed
  void (*winograd_output)(
      const WinogradPatches&);  // transformed -> 4 x 4 pixels of each tile, cut off at the images' edges
  void (*winograd_output_gradient)(const WinogradPatches&);  // 4 x 4 pixels of each tile -> transformed; transposed
  void (*winograd_weights)(const WinogradWeights&);          // taps -> transformed
  void (*winograd_weight_gradient)(const WinogradWeights&);  // transformed -> taps; transposed
  // Runs `rounds` fused multiply-adds in registers on each of several sums: the most that a core can do, for
  // measurements. Returns the number of additions and multiplications.
  double (*fma_peak)(std::int64_t rounds);
};

// Returns the kernels for an instruction set that the processor must support; by default, for that of simd().
const F32Kernels& f32_kernels(Simd simd);
const F32Kernels& f32_kernels();

}  // namespace lockstep::cpu
