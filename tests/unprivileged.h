// Root may write anywhere: a test of what the system refuses is somebody else for a while.
#pragma once

#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep {

class Unprivileged {
 public:
  Unprivileged() { check(::seteuid(user_ == 0 ? kNobody : user_) == 0, "seteuid"); }
  ~Unprivileged() {
    if (::seteuid(user_) != 0) std::abort();
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  const uid_t user_ = ::geteuid();
};

}  // namespace lockstep
