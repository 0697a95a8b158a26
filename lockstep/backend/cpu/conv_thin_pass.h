// Direct convolutions that compute few channels: the forward pass, and the gradient of the data. A vector holds 16
// pixels of a row, because RowPass would leave most of a vector of channels unused. The order of the sums is that of
// RowPass.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/context.h"
#include "lockstep/backend/conv.h"
#include "lockstep/backend/cpu/conv_group.h"
#include "lockstep/backend/cpu/conv_taps.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep::cpu {

class ThinPass {
 public:
  // True if this pass supports `p` and RowPass would compute at least twice as many products, vector padding included.
  static bool pays(const ConvGroup& p, ConvPass direction);

  ThinPass(const ConvGroup& p, ConvPass direction, const StridedImages& from, const StridedImages& to);

  // Number of f32 for each thread.
  std::int64_t scratch() const;

  // `packed` is as for RowPass; `bias` may be null.
  void run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const;

 private:
  // Rows of the result that read through the same rows of taps.
  struct RowClass {
    std::vector<AxisClass::Position> rows;
    std::vector<Step> whole, part;  // for a chunk of whole blocks, and for the remaining channels
  };

  std::int64_t terms() const { return from_.channels * taps_; }
  std::int64_t weights_size() const { return round_up(to_.channels * terms()); }
  // Includes room past the last row, because vectors extend past it.
  std::int64_t panel_size() const { return rows_.input * from_.channels * kTileColumns + kTileColumns; }

  // Steps over all taps of `blocks` blocks of `channels` channels.
  std::vector<Step> make_steps(const AxisClass& row, std::int64_t blocks, std::int64_t channels) const;
  // Copies packed weights to [channels of the result, blocks of channels, taps, channels of a block].
  void arrange(const float* packed, float* weights) const;
  // Copies 32 columns of each row of an image, starting at `column`. Padding is 0.
  void fill(const StridedImages& image, std::int64_t column, float* panel) const;
  void run_rows(const RowClass& c, const StridedImages& to, std::int64_t column, const float* panel,
                const float* weights, const float* bias, float* sums) const;

  // The axes as the pass sees them: it reads inputs and writes outputs.
  ConvAxis rows_, columns_;
  bool backward_;
  StridedImages from_, to_;
  std::int64_t images_, taps_;
  std::int64_t chunk_;          // blocks of channels per partial sum
  std::int64_t left_;           // from a column of the result to the first column that it reads
  std::int64_t tiles_, width_;  // number of tiles in a row, and of pixels in a tile
  std::vector<RowClass> classes_;
  std::vector<std::int64_t> weight_rows_, sum_rows_;
};

// The gradient of the weights for few outputs: vectors hold all weights of an output side by side. A copy of x keeps
// the elements that one column of taps reads contiguous, followed by those of the next column, so that all elements
// that a pixel's taps read are contiguous. The order of the sums is that of WeightPass.
class ThinWeightPass {
 public:
  // True if this pass supports `p`, a row of columns is small, and WeightPass would compute at least twice as many
  // products, vector padding included.
  static bool pays(const ConvGroup& p);

  ThinWeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy);

  // Number of f32.
  std::int64_t scratch(std::int64_t threads) const;

  // `db` may be null.
  void run(const KernelContext& context, float* dw, float* db, float* scratch) const;

 private:
  // Sizes of a thread's memory in f32: of all of it, padded rows of an image, converted rows, and columns.
  std::int64_t thread_scratch() const;
  std::int64_t padded_size() const;
  std::int64_t x_copy_size() const;
  std::int64_t columns_size() const;

  // Computes the partial sum of a chunk: `width_` f32 for each output.
  void run_chunk(std::int64_t chunk, float* sums, float* scratch) const;
  // Copies the rows of an image that rows [begin, end) of the result read, each row channel by channel. Padding is 0.
  // `copy` is room for converted rows.
  void pad(const StridedImages& image, std::int64_t begin, std::int64_t end, float* padded, float* copy) const;
  // For `rows` rows of the result and each padded column: writes what a column of taps reads, then a 1 for the bias.
  void stack(const float* padded, std::int64_t rows, float* columns) const;

  ConvGroup p_;
  StridedImages x_, dy_;
  WeightChunks chunks_;
  std::int64_t height_, width_;  // f32 of a column of taps, and of an output's weights in whole blocks
  std::int64_t padded_rows_, padded_columns_;
  std::vector<PixelPair> pixels_;  // offsets of a chunk's pixels in dy and in the columns
};

}  // namespace lockstep::cpu
