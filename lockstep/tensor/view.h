// A kernel's view of a tensor: the address and order of its elements. It owns nothing and knows no device, engine, or
// gradient.
#pragma once

#include <cstddef>

#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/layout.h"
#include "lockstep/tensor/shape.h"

namespace LOCKSTEP_API lockstep {

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  Layout layout = Layout::plain;
  Shape shape;

  template <typename T>
  T* as() const {
    check(dtype == dtype_of<T>, "view: elements are {}, asked for as {}", name(dtype), name(dtype_of<T>));
    return static_cast<T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  // Throws on overflow.
  std::size_t bytes() const {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<std::size_t>(numel()), item_size(dtype), &bytes)) {
      fail("tensor: shape {} of {} has more bytes than can be counted", shape.str(), name(dtype));
    }
    return bytes;
  }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace lockstep
