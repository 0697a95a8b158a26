// Winograd's algorithm for convolutions with 3 x 3 taps, stride 1, and dilation 1, over whole blocks of 16 channels. A
// tile of 4 x 4 outputs takes 36 products for each pair of channels; direct sums take 144. As in all f32 kernels, the
// order of sums depends on shapes alone. An infinity or a NaN may reach all outputs of the tiles that read it.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/backend/context.h"
#include "lockstep/backend/cpu/conv_taps.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/strided_images.h"

namespace lockstep::cpu {

// Whether the algorithm can compute a convolution and takes less time than direct sums. Depends on sizes alone.
bool winograd_pays(const ConvAxis& rows, const ConvAxis& columns, std::int64_t images, std::int64_t inputs,
                   std::int64_t outputs);

// The axis for the gradient of the data, which is a convolution of the outputs' gradient with the reversed kernel.
ConvAxis turned(const ConvAxis& axis);

// How images are cut into tiles.
struct WinogradTiles {
  ConvAxis rows, columns;

  std::int64_t tile_rows() const { return (rows.output + kWinogradTile - 1) / kWinogradTile; }
  std::int64_t tile_columns() const { return (columns.output + kWinogradTile - 1) / kWinogradTile; }
  std::int64_t count() const { return tile_rows() * tile_columns(); }  // per image
  // All tiles of `count` input images, and of `count` output images.
  WinogradPatches inputs(const StridedImages& images, std::int64_t count) const;
  WinogradPatches outputs(const StridedImages& images, std::int64_t count) const;
};

// A pass that computes images from images: the forward pass, or the gradient of the data.
class WinogradPass {
 public:
  WinogradPass(const WinogradTiles& tiles, std::int64_t images, const StridedImages& from, const StridedImages& to);

  // Number of f32 in the transformed weights.
  std::int64_t weights_size() const { return kWinogradFrequencies * frequency_; }
  // Call it once for all images computed with the same weights. The gradient of the data uses turned weights.
  void transform(const KernelContext& context, const Weights& weights, bool turned, float* transformed,
                 const F32Kernels& kernels = f32_kernels()) const;
  // Number of f32 for each thread.
  std::int64_t scratch() const;
  // `bias` has one element for each output channel, or is null.
  void run(const KernelContext& context, const float* transformed, const float* bias, float* scratch,
           const F32Kernels& kernels = f32_kernels()) const;

 private:
  WinogradTiles tiles_;
  std::int64_t images_;
  StridedImages from_, to_;
  std::int64_t frequency_;             // distance between frequencies of the transformed weights
  std::int64_t group_, panel_;         // images and tiles computed together
  std::int64_t chunk_;                 // blocks of channels per partial sum
  std::vector<std::int64_t> offsets_;  // offsets of a panel's tiles
  std::vector<Step> steps_;
};

// The gradient of the weights.
class WinogradWeightPass {
 public:
  WinogradWeightPass(const WinogradTiles& tiles, std::int64_t images, const StridedImages& x, const StridedImages& dy);

  // Whether a thread computes all frequencies of two blocks, which stay in its caches, instead of one frequency of all
  // blocks. This takes less time for few tiles of many channels and does not affect the bits.
  bool at_once() const { return at_once_; }
  // Number of f32 for all threads.
  std::int64_t scratch(int threads) const;
  // dw is [outputs, inputs, 9].
  void run(const KernelContext& context, float* dw, float* scratch, const F32Kernels& kernels = f32_kernels()) const;

 private:
  struct Chunks;

  // Number of f32 in the transformed tiles of some blocks.
  std::int64_t transformed_size(std::int64_t blocks) const;
  // Transforms the products of a block of x and a block of dy into their part of dw.
  void finish(float* products, std::int64_t row, std::int64_t column, float* dw, const F32Kernels& kernels) const;

  WinogradTiles tiles_;
  std::int64_t images_;
  StridedImages x_, dy_;
  std::int64_t frequency_;       // distance between frequencies of the products
  std::int64_t chunks_, panel_;  // chunks transformed together, and their tiles
  std::int64_t copied_;          // images copied at a time if they cannot be read in place
  bool at_once_;
  std::vector<PixelPair> pixels_;
};

}  // namespace lockstep::cpu
