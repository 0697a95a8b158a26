// Internal: kills process groups if their launcher is killed before it can end them.
#pragma once

#include <sys/types.h>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

// A small process that waits until this process ends and then kills the registered groups. The system kills our
// children by itself, but not their children, which exist if a rank is a shell script, for example.
class GroupGuard {
 public:
  // The most groups that the guard can watch at one time.
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
