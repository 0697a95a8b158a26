#include "interpreter_lock.h"

#include <cxxabi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::python {
namespace {

enum class Phase { running, stopping, draining, over };

constexpr auto kPatience = std::chrono::seconds(5);

std::atomic<Phase> phase{Phase::running};
std::atomic<unsigned long> leaving_thread{0};
std::atomic<int> in_python{0};
thread_local int depth = 0;            // number of InPython objects of this thread
thread_local bool is_refused = false;  // a WithLock of this thread threw: it must not return to Python

// Never destroyed, because threads may outlive static objects.
struct Runs {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<std::function<void()>> stops;
};
Runs& runs() {
  static auto& all = *new Runs;
  return all;
}

bool is_leaving_thread() { return PyThread_get_thread_ident() == leaving_thread.load(); }

[[noreturn]] void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Python ends a thread by an exception that cannot pass a destructor and must not be caught, so the handler never ends.
template <typename F>
void take_or_sleep(F&& take) {
#ifdef __GLIBCXX__
  try {
    take();
  } catch (abi::__forced_unwind&) {
    sleep_forever();
  }
#else
  take();
#endif
}

void leave() {
  leaving_thread = PyThread_get_thread_ident();
  const WithoutLock waiting;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  {
    std::unique_lock lock(runs().mutex);
    phase = Phase::stopping;
    for (const auto& stop : runs().stops) stop();
    runs().changed.wait_until(lock, end, [] { return runs().stops.empty(); });
  }
  phase = Phase::draining;
  while (in_python > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  phase = Phase::over;
}

}  // namespace

InPython::InPython() {
  if (depth++ > 0) return;
  ++in_python;
  if (phase < Phase::draining || is_leaving_thread()) return;
  --in_python;
  --depth;
  if (!interpreter_is_over() && PyGILState_Check() != 0) {
    const WithoutLock sleeping;
    sleep_forever();
  }
  is_refused = true;
  fail("lockstep: the interpreter has ended");
}

InPython::~InPython() {
  if (--depth == 0) --in_python;
}

WithLock::WithLock() {
  take_or_sleep([&] { lock_.emplace(); });
}

WithLock::~WithLock() {
  // Sleeps, because Python is ending this thread, which can no longer get the lock.
  if (phase == Phase::over && !is_leaving_thread() && interpreter_is_over()) sleep_forever();
}

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) {}

WithoutLock::~WithoutLock() {
  if (phase >= Phase::draining && (is_refused || phase == Phase::over) && !is_leaving_thread()) sleep_forever();
  take_or_sleep([&] { PyEval_RestoreThread(state_); });
}

LeavingRun::LeavingRun(std::function<void()> stop) {
  std::unique_lock lock(runs().mutex);
  if (phase != Phase::running && !is_leaving_thread()) {
    lock.unlock();
    sleep_forever();
  }
  at_ = runs().stops.insert(runs().stops.end(), std::move(stop));
}

LeavingRun::~LeavingRun() {
  const std::lock_guard lock(runs().mutex);
  runs().stops.erase(at_);
  runs().changed.notify_all();
}

bool left_threads_behind() { return phase == Phase::over && in_python > 0; }

bool interpreter_is_over() {
#if PY_VERSION_HEX >= 0x030d0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

void add_interpreter_lock(py::module_& m) { m.def("_leave", &leave); }

}  // namespace lockstep::python
