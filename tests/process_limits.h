// Limits and filters of system calls for tests. Each runs in a separate process.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep {

// The exit status of a child process that runs `body`. Limits and filters of system calls then hold for that process
// alone. The child is killed after 30 s.
inline int status_of_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    int status = 100;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  check(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

// While this lives, the process may map at most so many bytes in addition. Sanitizers map terabytes themselves: under
// them it does nothing.
class MemoryLimit {
 public:
  explicit MemoryLimit([[maybe_unused]] rlim_t bytes) {
    ::getrlimit(RLIMIT_DATA, &old_);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    rlim_t pages = 0;  // of data: the sixth number
    std::ifstream statm("/proc/self/statm");
    for (int i = 0; i < 6; ++i) statm >> pages;
    const rlimit limit{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes, old_.rlim_max};
    check(::setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit");
#endif
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &old_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit old_{};
};

inline rlim_t soft_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Makes the system call fail with ENOSYS in this process, as on an old kernel or in a sandbox. False if filters are not
// available.
inline bool forbid(int system_call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(system_call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The status of a child whose forbid() returned false.
constexpr int kNoFilter = 77;

}  // namespace lockstep
