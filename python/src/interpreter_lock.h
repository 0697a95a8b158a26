// The interpreter lock, and the end of the interpreter. Threads of this package may live longer than the interpreter:
// those of the library, and a daemon thread of the program that trains. Python ends a thread that asks for its lock too
// late, by unwinding its stack, which C++ destructors do not survive. So the end has an order:
//
// 1. At exit, runs (LeavingRun) are asked to stop, and threads in Python may end; both for a bounded time.
//   2. From then on WithLock throws Error, so that the library's threads end as after any failure.
// 3. A thread that would return to Python sleeps, because its caller is gone. The process ends without it.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>

namespace lockstep::python {

namespace py = pybind11;

// While it exists, this thread is in Python for the library, and the end of the interpreter waits for it.
class InPython {
 public:
  // If the interpreter is ending and this thread was not in Python before: throws Error, or sleeps if it has the lock.
  InPython();
  ~InPython();
  InPython(const InPython&) = delete;
  InPython& operator=(const InPython&) = delete;
};

// Takes the lock, even in a thread that Python does not know.
class WithLock {
 public:
  WithLock();
  ~WithLock();
  WithLock(const WithLock&) = delete;
  WithLock& operator=(const WithLock&) = delete;

 private:
  InPython in_python_;
  std::optional<py::gil_scoped_acquire> lock_;
};

// Releases the lock.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

using released = py::call_guard<WithoutLock>;

// While it exists, the end of the interpreter calls `stop`, and waits for its destructor. Make it without the lock.
class LeavingRun {
 public:
  explicit LeavingRun(std::function<void()> stop);
  ~LeavingRun();
  LeavingRun(const LeavingRun&) = delete;
  LeavingRun& operator=(const LeavingRun&) = delete;

 private:
  std::list<std::function<void()>>::iterator at_;
};

// Whether threads are still in Python after the bounded time. They do not answer, so nobody must wait for them.
bool left_threads_behind();
// Whether Python can no longer give its lock.
bool interpreter_is_over();

// Adds `_leave`, for atexit.
void add_interpreter_lock(py::module_& m);

}  // namespace lockstep::python
