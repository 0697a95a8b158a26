// Internal: a vector with an inline buffer for N elements, so a task's lists rarely need the heap.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/export.h"

namespace lockstep {

// T must be default-constructible and cheap to move. Once the vector outgrows N, all elements are on the heap.
template <typename T, std::size_t N>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  // Makes {a, b, c} without the copies of an initializer list.
  template <typename... Items>
  requires(sizeof...(Items) > 0 && (std::is_convertible_v<Items&&, T> && ...))
      SmallVector(Items&&... items) {  // NOLINT: converts like a list
    (push_back(std::forward<Items>(items)), ...);
  }
  SmallVector(const SmallVector&) = default;
  SmallVector& operator=(const SmallVector&) = default;
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }

  void push_back(T item) {
    if (size_ < N) {
      room_[size_] = std::move(item);
    } else {
      if (size_ == N) heap_.assign(std::make_move_iterator(room_.begin()), std::make_move_iterator(room_.end()));
      heap_.push_back(std::move(item));
    }
    ++size_;
  }
  void clear() {
    for (std::size_t i = 0; i < std::min(size_, N); ++i) room_[i] = T{};
    heap_.clear();
    size_ = 0;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return size_ > N ? heap_.data() : room_.data(); }
  const T* data() const { return size_ > N ? heap_.data() : room_.data(); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  void take(SmallVector& other) noexcept {
    if (other.size_ > N) {
      heap_ = std::move(other.heap_);
    } else {
      for (std::size_t i = 0; i < other.size_; ++i) room_[i] = std::move(other.room_[i]);
    }
    size_ = other.size_;
    other.clear();
  }

  std::array<T, N> room_{};
  std::vector<T> heap_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
