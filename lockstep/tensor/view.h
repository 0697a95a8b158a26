// A kernel's view of an array: the address, type, shape, and order of its elements. It owns nothing and knows no
// device, engine, or gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace LOCKSTEP_API lockstep {

// The order of an array's elements in memory. Every array is dense.
//
//   plain          row-major, the last axis is contiguous (N, C, H, W for images)
//   channels_last  N, H, W, C: preferred by bf16 convolutions (AMX) and cuDNN
//   blocked16      N, C/16, H, W, 16: preferred by f32 convolutions; C is a multiple of 16
//
// The shape of an array is always written (N, C, H, W). Layouts other than plain require four axes.
enum class Layout : std::uint8_t { plain, channels_last, blocked16 };

inline constexpr std::int64_t kChannelBlock = 16;

constexpr std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::plain: return "plain";
    case Layout::channels_last: return "channels-last";
    case Layout::blocked16: return "blocked16";
  }
  return "?";
}

// True if an array of this shape can have this layout.
inline bool layout_fits(Layout layout, const Shape& shape) {
  if (layout == Layout::plain) return true;
  if (shape.dim() != 4) return false;
  return layout == Layout::channels_last || shape[1] % kChannelBlock == 0;
}

// True if both layouts put every element of this shape at the same offset, as all layouts do for 1x1 images.
inline bool same_order(Layout a, Layout b, const Shape& shape) {
  if (a == b) return true;
  if (shape.dim() != 4) return false;
  bool pixel = shape[2] * shape[3] == 1;
  if (pixel) return true;
  return shape[1] == 1 && a != Layout::blocked16 && b != Layout::blocked16;
}

// Offset, in elements, of (n, c, h, w) in an array of this shape and layout.
inline std::int64_t offset4(Layout layout, const Shape& s, std::int64_t n, std::int64_t c, std::int64_t h,
                            std::int64_t w) {
  switch (layout) {
    case Layout::plain: return ((n * s[1] + c) * s[2] + h) * s[3] + w;
    case Layout::channels_last: return ((n * s[2] + h) * s[3] + w) * s[1] + c;
    case Layout::blocked16:
      return (((n * (s[1] / kChannelBlock) + c / kChannelBlock) * s[2] + h) * s[3] + w) * kChannelBlock +
             c % kChannelBlock;
  }
  return 0;
}

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Layout layout = Layout::plain;
  Shape shape;

  template <typename T>
  T* as() const {
    check(dtype == dtype_of<T>, "view: the elements are {}, requested as {}", name(dtype), name(dtype_of<T>));
    return static_cast<T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  // Throws on overflow.
  std::size_t bytes() const {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(numel()), item_size(dtype), &bytes)) {
      fail("array: shape {} of {} has more bytes than can be counted", shape.str(), name(dtype));
    }
    return bytes;
  }
  explicit operator bool() const { return data != nullptr; }
};

// Offset, in elements, of element i in plain order.
inline std::int64_t plain_offset(const View& v, std::int64_t i) {
  if (v.layout == Layout::plain) return i;
  const Shape& s = v.shape;
  const std::int64_t w = i % s[3], h = i / s[3] % s[2], c = i / (s[3] * s[2]) % s[1], n = i / (s[3] * s[2] * s[1]);
  return offset4(v.layout, s, n, c, h, w);
}

}  // namespace lockstep
