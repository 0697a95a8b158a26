// Internal: a move-only std::function with an inline buffer: it stores closures of up to Room bytes inside itself, so
// pushing a task allocates nothing.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "lockstep/base/export.h"

namespace lockstep {

template <typename Signature, std::size_t Room>
class InlineFunction;

template <typename R, typename... Args, std::size_t Room>
class InlineFunction<R(Args...), Room> {
 public:
  // Not defaulted: `= {}` would then zero the buffer.
  InlineFunction() {}  // NOLINT(modernize-use-equals-default)
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, InlineFunction> && std::is_invocable_r_v<R, F&, Args...>)
      InlineFunction(F&& f) {  // NOLINT: converts like std::function
    using Closure = std::remove_cvref_t<F>;
    if constexpr (sizeof(Closure) <= Room && alignof(Closure) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Closure>) {
      new (room_) Closure(std::forward<F>(f));
      operations_ = &kInline<Closure>;
    } else {
      new (room_) Closure*(new Closure(std::forward<F>(f)));
      operations_ = &kHeap<Closure>;
    }
  }
  InlineFunction(InlineFunction&& other) noexcept { take(other); }
  InlineFunction& operator=(InlineFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~InlineFunction() { reset(); }

  void reset() {
    if (operations_) operations_->destroy(room_);
    operations_ = nullptr;
  }
  explicit operator bool() const { return operations_ != nullptr; }
  R operator()(Args... args) { return operations_->call(room_, std::forward<Args>(args)...); }

 private:
  struct Operations {
    R (*call)(void*, Args...);
    void (*move)(void* from, void* to) noexcept;
    void (*destroy)(void*) noexcept;
  };
  template <typename C>
  static constexpr Operations kInline{
      [](void* p, Args... args) -> R { return (*static_cast<C*>(p))(std::forward<Args>(args)...); },
      [](void* from, void* to) noexcept {
        new (to) C(std::move(*static_cast<C*>(from)));
        static_cast<C*>(from)->~C();
      },
      [](void* p) noexcept { static_cast<C*>(p)->~C(); }};
  template <typename C>
  static constexpr Operations kHeap{
      [](void* p, Args... args) -> R { return (**static_cast<C**>(p))(std::forward<Args>(args)...); },
      [](void* from, void* to) noexcept { new (to) C*(*static_cast<C**>(from)); },
      [](void* p) noexcept { delete *static_cast<C**>(p); }};

  void take(InlineFunction& other) noexcept {
    operations_ = other.operations_;
    if (operations_) operations_->move(other.room_, room_);
    other.operations_ = nullptr;
  }

  alignas(std::max_align_t) unsigned char room_[Room < sizeof(void*) ? sizeof(void*) : Room];
  const Operations* operations_ = nullptr;
};

}  // namespace lockstep
