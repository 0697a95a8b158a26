#include "lockstep/base/fork_guard.h"

#include <unistd.h>

#include <atomic>

namespace lockstep {
namespace {

// A child of fork() inherits these variables, so that it can tell itself from the process that noted the text.
constinit std::atomic<const char*> broken = nullptr;
constinit std::atomic<pid_t> noted_by = 0;

}  // namespace

void note_broken_by_fork(const char* what) {
  pid_t nobody = 0;
  noted_by.compare_exchange_strong(nobody, ::getpid());
  broken = what;
}

std::string_view broken_by_fork() {
  const char* what = broken;
  return what ? what : "";
}

bool is_broken_by_fork() {
  const pid_t process = noted_by;
  return process != 0 && process != ::getpid();
}

}  // namespace lockstep
