// The extents of a tensor. A shape has at most six axes, so it never allocates; more are an error.
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
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    check(dims.size() <= kMaxRank, "shape: {} axes, at most {} are supported", dims.size(), kMaxRank);
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }

  int rank() const { return rank_; }
  // Negative axes count from the end, as in shape[-1].
  std::int64_t operator[](int axis) const { return dims_[index(axis)]; }
  std::int64_t& operator[](int axis) { return dims_[index(axis)]; }
  // The number of elements. Throws if an extent is negative or the number does not fit in an int64.
  std::int64_t numel() const {
    std::int64_t n = 1;
    bool counted = true;
    for (int i = 0; i < rank_; ++i) counted = dims_[i] >= 0 && !__builtin_mul_overflow(n, dims_[i], &n) && counted;
    return counted ? n : numel_of_odd();
  }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.begin() + rank_; }

  bool operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

  // "[64, 3, 3, 3]"
  std::string str() const {
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
    return s + "]";
  }

 private:
  // Called if an extent is negative or the product overflows; the product is 0 if one extent is 0.
  std::int64_t numel_of_odd() const {
    for (std::int64_t extent : *this) check(extent >= 0, "tensor: shape {} has a negative extent", str());
    if (std::find(begin(), end(), 0) == end()) fail("tensor: shape {} has more elements than can be counted", str());
    return 0;
  }
  std::size_t index(int axis) const {
    int i = axis < 0 ? axis + rank_ : axis;
    check(i >= 0 && i < rank_, "shape: axis {} is out of range for {} axes", axis, rank_);
    return static_cast<std::size_t>(i);
  }

  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace lockstep

template <>
struct fmt::formatter<lockstep::Shape> : lockstep::TextFormatter<lockstep::Shape> {};
