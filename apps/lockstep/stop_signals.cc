#include "apps/lockstep/stop_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace lockstep::app {
namespace {

enum class Phase { before, training, stopped, complete };

// State that the signal handler may access.
std::atomic<Phase> phase{Phase::before};
std::atomic<Trainer*> trainer_to_stop{nullptr};
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> first_interrupt{0};  // time of the first SIGINT, in ns
static_assert(std::atomic<Trainer*>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

constexpr std::int64_t kSecond = 1'000'000'000;

// Returns at least 1, because 0 means "not yet".
std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec + 1;
}

// Ends the process as the signal does by default. The kernel does not kill process 1 of a container, so it exits.
[[noreturn]] void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

void on_signal(int signal) {
  const int error = errno;
  int none = 0;
  const bool is_first = first_signal.compare_exchange_strong(none, signal);
  if (signal == SIGINT) {
    std::int64_t unset = 0;
    const std::int64_t time = now();
    if (!first_interrupt.compare_exchange_strong(unset, time) && time - unset >= kSecond) end_by(signal);
  }
  switch (phase.load()) {
    case Phase::before:
      if (is_first) end_by(signal);
      break;
    case Phase::training:
      if (Trainer* trainer = trainer_to_stop.load()) trainer->request_stop();
      break;
    case Phase::stopped: break;
    case Phase::complete:
      // The remaining work, such as --export, does not need readers of the output.
      if (is_first && signal != SIGPIPE) end_by(signal);
      break;
  }
  errno = error;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool hup_was_ignored = false;

void note_ignored(int, char**, char**) { hup_was_ignored = is_ignored(SIGHUP); }

// An executable's .preinit_array runs before the initializers of its libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*const note)(int, char**, char**) = note_ignored;

}  // namespace

void keep_ignored_signals() {
  if (hup_was_ignored) ::signal(SIGHUP, SIG_IGN);
}

StopSignals::StopSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) {
    const bool always = signal == SIGINT || signal == SIGTERM;
    if (always || !is_ignored(signal)) ::signal(signal, on_signal);
  }
}

TrainingResult StopSignals::train(Trainer& trainer) {
  trainer_to_stop = &trainer;
  phase = Phase::training;
  try {
    TrainingResult result = trainer.train();
    finish(result.stopped);
    return result;
  } catch (...) {
    finish(first_signal.load() != 0);
    throw;
  }
}

void StopSignals::finish(bool stopped) {
  stopped_ = stopped;
  phase = stopped ? Phase::stopped : Phase::complete;
  trainer_to_stop = nullptr;
}

int StopSignals::status() const {
  const int signal = first_signal.load();
  if (!stopped_) return signal == SIGPIPE ? 128 + SIGPIPE : 0;
  return 128 + (signal == 0 || signal == SIGHUP ? SIGTERM : signal);
}

}  // namespace lockstep::app
