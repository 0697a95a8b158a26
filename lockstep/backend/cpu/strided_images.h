// Images [N, C, H, W] of any layout and floating type as the f32 kernels read and write them: sixteen channels of a pixel
// side by side. What lies so already is used in place; the rest is copied, a panel of some images at a time.
#pragma once

#include <cstdint>

#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/tensor/view.h"

namespace lockstep::cpu {

// Where the elements of images are, in elements of their type. Channel c of pixel p of image n is number
// n * image + (c / 16) * block + (c % 16) * channel + p * pixel.
struct StridedImages {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t channels = 0, pixels = 0;
  std::int64_t image = 0, block = 0, pixel = 0, channel = 1;
  // Blocks belong to these images alone: a copy fills the last one with 0 behind the last channel.
  bool padded = false;

  static StridedImages of(const View& v);
  // f32 memory for images in blocks of 16 channels, the last of which may be partly used: what is written by vectors.
  static StridedImages blocked(float* data, std::int64_t channels, std::int64_t pixels);
  // f32 memory for images with all channels of a pixel side by side.
  static StridedImages channels_last(float* data, std::int64_t channels, std::int64_t pixels);

  StridedImages images_from(std::int64_t n) const;
  // Channels [begin, begin + count). Throws unless the result has strides, which holds where begin is a multiple of 16 or
  // channels are not in blocks.
  StridedImages slice(std::int64_t begin, std::int64_t count) const;
  bool can_slice(std::int64_t begin) const { return begin % kBlock == 0 || block == kBlock * channel; }

  float* f32() const { return static_cast<float*>(data); }
  // Usable in place where single channels are read.
  bool readable() const { return dtype == DType::f32 && channel == 1; }
  // Usable in place where vectors of 16 channels are read or written.
  bool vectors() const { return readable() && pixel == kBlock && channels % kBlock == 0; }
  std::int64_t blocks() const { return (channels + kBlock - 1) / kBlock; }
};

// Copies `count` images of f32, bf16 or f16, converting. Both have the same channels and pixels.
void copy_images(const StridedImages& from, const StridedImages& to, std::int64_t count);

}  // namespace lockstep::cpu
