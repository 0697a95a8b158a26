// Drops Python references of the engine's threads. Such a thread must not wait for the interpreter lock, because the
// main thread may hold it while it waits for the engine. So the function that drops the reference goes on a list, which
// the interpreter empties soon: at the next bytecode of its main thread.
//
//   release_later([object] { Py_DECREF(object); });
#pragma once

#include <pybind11/pybind11.h>

#include <functional>

namespace lockstep::python {

// Calls `release` with the interpreter lock: now if this thread has it, soon otherwise. Never calls it after the
// interpreter's end, when the process is about to free all memory anyway.
void release_later(std::function<void()> release);
// Calls what is on the list. Call it with the lock.
void release_now();

}  // namespace lockstep::python
