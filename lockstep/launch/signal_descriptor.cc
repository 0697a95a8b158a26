#include "lockstep/launch/signal_descriptor.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {

SignalDescriptor::SignalDescriptor(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  check(static_cast<bool>(descriptor_), "signals: {}", std::generic_category().message(errno));
  // Restores the default for SIGCHLD, because a process that ignores it cannot learn how its children ended.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &child_action_before_);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

SignalDescriptor::~SignalDescriptor() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGCHLD, &child_action_before_, nullptr);
}

std::optional<int> SignalDescriptor::take() {
  signalfd_siginfo info;
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return {};
  return static_cast<int>(info.ssi_signo);
}

}  // namespace lockstep
