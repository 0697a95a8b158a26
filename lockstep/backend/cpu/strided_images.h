// Images [N, C, H, W] of any layout, in f32, bf16, or f16, for the f32 kernels, which read 16 channels of a pixel side
// by side. Images with that arrangement are used in place; others are copied, some images at a time.
#pragma once

#include <cstdint>

#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/tensor/view.h"

namespace lockstep::cpu {

// The positions of elements, in elements of their type. Channel c of pixel p of image n has index n * image + (c / 16)
// * block + (c % 16) * channel + p * pixel.
struct StridedImages {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t channels = 0, pixels = 0;
  std::int64_t image = 0, block = 0, pixel = 0, channel = 1;
  // Whether the last block has room for 16 channels; a copy fills it with 0 after the last channel.
  bool padded = false;

  static StridedImages of(const View& v);
  // f32 memory for images in blocks of 16 channels, for writing by vectors. The last block may be partly used.
  static StridedImages blocked(float* data, std::int64_t channels, std::int64_t pixels);
  // f32 memory for images with all channels of a pixel side by side.
  static StridedImages channels_last(float* data, std::int64_t channels, std::int64_t pixels);

  // Returns the same images, `offset` elements further on.
  StridedImages moved(std::int64_t offset) const;
  StridedImages images_from(std::int64_t n) const { return moved(n * image); }
  // Returns pixels [begin, begin + count).
  StridedImages pixels_from(std::int64_t begin, std::int64_t count) const;
  // Returns channels [begin, begin + count). Throws if channels are in blocks and begin is not a multiple of 16: no
  // strides describe that part.
  StridedImages slice(std::int64_t begin, std::int64_t count) const;
  bool can_slice(std::int64_t begin) const { return begin % kBlock == 0 || block == kBlock * channel; }

  float* f32() const { return static_cast<float*>(data); }
  // True if code that reads single channels can use the images in place.
  bool readable() const { return dtype == DType::f32 && channel == 1; }
  // True if code that reads or writes vectors of 16 channels can use the images in place.
  bool vectors() const { return readable() && pixel == kBlock && channels % kBlock == 0; }
  std::int64_t blocks() const { return (channels + kBlock - 1) / kBlock; }
};

// Copies and converts `count` images of f32, bf16, or f16. Both sides have the same channels and pixels.
void copy_images(const StridedImages& from, const StridedImages& to, std::int64_t count);

}  // namespace lockstep::cpu
