// Direct convolutions that compute few channels: the forward pass, and the gradient of the data. Sixteen pixels of a
// row lie side by side in a vector, where RowPass would leave most of a vector of channels unused. Sums have RowPass's
// order.
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
  // True if RowPass would compute at least twice as many products, those for padding of vectors included.
  static bool pays(const ConvGroup& p, ConvPass direction);

  ThinPass(const ConvGroup& p, ConvPass direction, const StridedImages& from, const StridedImages& to);

  // Number of f32 for each thread.
  std::int64_t scratch() const;

  // `packed` as for RowPass; `bias` or null.
  void run(const KernelContext& context, const float* packed, const float* bias, float* scratch) const;

 private:
  // Rows of the result that meet the same rows of taps.
  struct RowClass {
    std::vector<AxisClass::Position> rows;
    std::vector<Step> whole, part;  // for a chunk of whole blocks, and for the remaining channels
  };

  std::int64_t terms() const { return from_.channels * taps_; }
  std::int64_t weights_size() const { return round_up(to_.channels * terms()); }
  // Room behind the last row, because vectors reach beyond it.
  std::int64_t panel_size() const { return rows_.input * from_.channels * kTileColumns + kTileColumns; }

  // Steps over all taps of `blocks` blocks of `channels` channels.
  std::vector<Step> make_steps(const AxisClass& row, std::int64_t blocks, std::int64_t channels) const;
  // Copies packed weights: for each channel of the result by blocks of channels, then taps.
  void arrange(const float* packed, float* weights) const;
  // Copies 32 columns of an image's rows, the first of which is `column`. Padding is 0.
  void fill(const StridedImages& image, std::int64_t column, float* panel) const;
  void run_rows(const RowClass& c, const StridedImages& to, std::int64_t column, const float* panel,
                const float* weights, const float* bias, float* sums) const;

  // As the pass sees them: inputs are read, outputs are written.
  ConvAxis rows_, columns_;
  bool backward_;
  StridedImages from_, to_;
  std::int64_t images_, taps_;
  std::int64_t chunk_;          // blocks of channels per partial sum
  std::int64_t left_;           // from a column of the result to the first one that it reads
  std::int64_t tiles_, width_;  // of a row: number of tiles, pixels in each
  std::vector<RowClass> classes_;
  std::vector<std::int64_t> weight_rows_, sum_rows_;
};

// The gradient of the weights with few outputs: all weights of an output lie side by side in vectors. In a copy of x,
// the elements that one column of taps reads lie side by side, and the next column's follow, so that the elements that
// all taps of a pixel read are contiguous. Sums have WeightPass's order.
class ThinWeightPass {
 public:
  // True if WeightPass would compute at least twice as many products, those for padding of vectors included, and a row
  // of columns is small.
  static bool pays(const ConvGroup& p);

  ThinWeightPass(const ConvGroup& p, const StridedImages& x, const StridedImages& dy);

  // Number of f32.
  std::int64_t scratch(std::int64_t threads) const;

  // Without `db`, that gradient is not written.
  void run(const KernelContext& context, float* dw, float* db, float* scratch) const;

 private:
  // Parts of a thread's memory: all of it, rows of an image with padding, converted rows, and columns.
  std::int64_t thread_scratch() const;
  std::int64_t padded_size() const;
  std::int64_t x_copy_size() const;
  std::int64_t columns_size() const;

  // The partial sum of a chunk: `width_` for each output.
  void run_chunk(std::int64_t chunk, float* sums, float* scratch) const;
  // Copies what rows [begin, end) of the result meet in an image: for each row by channels. Padding is 0. `copy` is
  // room for converted rows.
  void pad(const StridedImages& image, std::int64_t begin, std::int64_t end, float* padded, float* copy) const;
  // For each column of `rows` rows of the result: copies what a column of taps meets, followed by a 1 for the bias.
  void stack(const float* padded, std::int64_t rows, float* columns) const;

  ConvGroup p_;
  StridedImages x_, dy_;
  WeightChunks chunks_;
  std::int64_t height_, width_;  // numbers of a column of taps, and of an output's weights in whole blocks
  std::int64_t padded_rows_, padded_columns_;
  std::vector<PixelPair> pixels_;  // of a chunk: in dy, and among the columns
};

}  // namespace lockstep::cpu
