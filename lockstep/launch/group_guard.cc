#include "lockstep/launch/group_guard.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/net/descriptor_limit.h"

namespace lockstep {
namespace {

// Runs in the child of a process that may have threads, so only async-signal-safe calls are allowed.
[[noreturn]] void guard(int socket) {
  ::setsid();
  if (::dup2(socket, 0) != 0) ::_exit(1);
  close_descriptors_from(1);
  pid_t groups[GroupGuard::kMostGroups];
  int count = 0;
  pid_t message;
  for (;;) {
    const ssize_t n = ::read(0, &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof message) break;
    if (message > 0 && count < GroupGuard::kMostGroups) groups[count++] = message;
    for (int i = 0; i < count; ++i) {
      if (groups[i] == -message) groups[i] = groups[--count];
    }
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

GroupGuard::GroupGuard() {
  int ends[2];
  const int failed = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  check(failed == 0, "guard: {}", std::generic_category().message(errno));
  const FileDescriptor read_end(ends[0]);
  socket_ = FileDescriptor(ends[1]);
  // Only SIGKILL may end the guard early.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  process_ = ::fork();
  if (process_ == 0) guard(read_end.get());
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  check(process_ > 0, "guard: {}", std::generic_category().message(error));
}

GroupGuard::~GroupGuard() {
  socket_.reset();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void GroupGuard::tell(pid_t message) {
  // MSG_NOSIGNAL: if the guard was killed, only the protection is lost, and this process continues.
  while (::send(socket_.get(), &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace lockstep
