// Internal: a check that throws if two threads use an object at the same time.
#pragma once

#include <atomic>
#include <string_view>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {

// The thread that uses an object, if any.
class InUse {
 public:
  InUse() = default;
  // A copy starts without a user, because the use is not part of the object's value.
  InUse(const InUse& /*other*/) noexcept {}
  InUse& operator=(const InUse& /*other*/) noexcept { return *this; }

  // Throws if another thread uses the object. A thread may open several scopes within one another.
  class Scope {
   public:
    Scope(InUse& use, std::string_view what) : use_(use) {
      std::thread::id nobody;
      const std::thread::id me = std::this_thread::get_id();
      outermost_ = use.thread_.compare_exchange_strong(nobody, me, std::memory_order_acquire);
      check(outermost_ || nobody == me, "{}: another thread is using it, expected one thread at a time", what);
    }
    ~Scope() {
      if (outermost_) use_.thread_.store({}, std::memory_order_release);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InUse& use_;
    bool outermost_ = false;
  };

 private:
  std::atomic<std::thread::id> thread_{};
};

}  // namespace lockstep
