#include "interruptible.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "bindings.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/engine/engine.h"
#include "lockstep/tensor/storage.h"

namespace lockstep::python {
namespace {

// Only the main thread gets signals.
bool is_main_thread() {
  static const unsigned long main_thread =
      py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  return PyThread_get_thread_ident() == main_thread;
}

struct Watched {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr failure;
};

bool is_ready(const Tensor& x) {
  for (const Array& part : x->parts) {
    Storage& owner = part.storage()->owner();
    std::shared_ptr<Engine> engine;
    Resource used;
    {
      const std::lock_guard lock(owner.mutex);
      engine = owner.engine;
      used = owner.resource;
    }
    if (engine && !engine->unused(used)) return false;
  }
  return true;
}

}  // namespace

void interruptible(std::function<void()> wait) {
  if (!is_main_thread()) {
    const WithoutLock waiting;
    return wait();
  }
  const auto watched = std::make_shared<Watched>();
  std::thread([watched, wait = std::move(wait)] {
    std::exception_ptr failure;
    try {
      wait();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(watched->mutex);
    watched->failure = failure;
    watched->done = true;
    watched->changed.notify_one();
  }).detach();
  for (;;) {
    {
      const WithoutLock waiting;
      std::unique_lock lock(watched->mutex);
      if (watched->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return watched->done; })) break;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  if (watched->failure) std::rethrow_exception(watched->failure);
}

void wait_for(const Tensor& x) {
  if (!x.defined()) return;
  // Most waits are short, and starting a thread would take longer.
  constexpr auto kShort = std::chrono::microseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  bool ready = is_ready(x);
  if (!ready) {
    const WithoutLock waiting;
    while (!ready && std::chrono::steady_clock::now() - begin < kShort) {
      std::this_thread::yield();
      ready = is_ready(x);
    }
  }
  if (!ready) return interruptible([x] { x.wait(); });
  x.wait();
}

SignalScope::SignalScope(std::function<void()> on_signal)
    : scope_([on_signal = std::move(on_signal)] {
        const WithLock lock;
        if (PyErr_CheckSignals() == 0) return;
        py::error_already_set error;  // clears the error, so that on_signal may use Python
        if (on_signal) on_signal();
        throw error;
      }) {}

}  // namespace lockstep::python
