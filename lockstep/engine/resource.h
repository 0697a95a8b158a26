// Internal: the tag of a piece of data, by which tasks name what they read and write. It is a handle: copies stand for
// the same data. Made by Engine::make_resource.
#pragma once

#include "lockstep/base/export.h"

namespace lockstep {

class DependencyGraph;
struct ResourceState;

class Resource {
 public:
  Resource() = default;
  Resource(const Resource& other) : state_(other.state_) {
    if (state_) retain(state_);
  }
  Resource(Resource&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  Resource& operator=(Resource other) noexcept {
    ResourceState* mine = state_;
    state_ = other.state_;
    other.state_ = mine;
    return *this;
  }
  ~Resource() {
    if (state_) release(state_);
  }

  explicit operator bool() const { return state_ != nullptr; }
  bool operator==(const Resource& other) const { return state_ == other.state_; }
  ResourceState* state() const { return state_; }

 private:
  friend class DependencyGraph;
  explicit Resource(ResourceState* adopted) : state_(adopted) {}
  static void retain(ResourceState* state) noexcept;
  static void release(ResourceState* state) noexcept;

  ResourceState* state_ = nullptr;  // reference-counted
};

}  // namespace lockstep
