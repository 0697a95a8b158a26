// The extents of an array. A shape has at most six axes, so it never allocates; more are an error.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

class Shape {
 public:
  static constexpr int kMaxDim = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes) : dim_(static_cast<int>(sizes.size())) {
    check(sizes.size() <= kMaxDim, "shape: {} axes, at most {} are supported", sizes.size(), kMaxDim);
    std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  }

  // Number of axes.
  int dim() const { return dim_; }
  // Negative axes count from the end, as in shape[-1].
  std::int64_t operator[](int axis) const { return sizes_[index(axis)]; }
  std::int64_t& operator[](int axis) { return sizes_[index(axis)]; }
  // Returns the number of elements. Throws if an extent is negative or the number does not fit in an int64.
  std::int64_t numel() const {
    std::int64_t n = 1;
    bool counted = true;
    for (int i = 0; i < dim_; ++i) counted = sizes_[i] >= 0 && !__builtin_mul_overflow(n, sizes_[i], &n) && counted;
    return counted ? n : numel_of_odd();
  }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), static_cast<std::size_t>(dim_)}; }
  auto begin() const { return sizes_.begin(); }
  auto end() const { return sizes_.begin() + dim_; }

  bool operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

  // "[64, 3, 3, 3]"
  std::string str() const {
    std::string s = "[";
    for (int i = 0; i < dim_; ++i) s += (i ? ", " : "") + std::to_string(sizes_[i]);
    return s + "]";
  }

 private:
  // Called if an extent is negative or the product overflows; the product is 0 if one extent is 0.
  std::int64_t numel_of_odd() const {
    for (std::int64_t extent : *this) check(extent >= 0, "shape: {} has a negative extent", str());
    if (std::find(begin(), end(), 0) == end()) fail("shape: {} has more elements than can be counted", str());
    return 0;
  }
  std::size_t index(int axis) const {
    int i = axis < 0 ? axis + dim_ : axis;
    check(i >= 0 && i < dim_, "shape: axis {} is out of range for {} axes", axis, dim_);
    return static_cast<std::size_t>(i);
  }

  std::array<std::int64_t, kMaxDim> sizes_{};
  int dim_ = 0;
};

}  // namespace lockstep

template <>
struct fmt::formatter<lockstep::Shape> : lockstep::TextFormatter<lockstep::Shape> {};
