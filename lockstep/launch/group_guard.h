// Ends process groups whose launcher was killed before it could.
#pragma once

#include <sys/types.h>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

// A small process that waits for this one's end, and then kills the groups that it was told of: the system itself
// would end our children, but not theirs (a rank that is a shell script).
class GroupGuard {
 public:
  // In all, over its life.
  static constexpr int kMostGroups = 4096;

  GroupGuard();
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t message);

  pid_t process_ = -1;
  FileDescriptor socket_;
};

}  // namespace lockstep
