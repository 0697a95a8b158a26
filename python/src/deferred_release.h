// Python references that threads of the engine drop. Such a thread must not wait for the interpreter lock, because the
// main thread may hold it while it waits for the engine. So what drops the reference goes on a list, which
// the interpreter empties soon: at the next bytecode of its main thread.
//
//   release_later([object] { Py_DECREF(object); });
#pragma once

#include <pybind11/pybind11.h>

#include <functional>

namespace lockstep::python {

// Calls `release` with the interpreter lock: now if this thread has it, soon otherwise. After the interpreter's end,
// never: the memory goes with the process.
void release_later(std::function<void()> release);
// With the lock: calls what is on the list.
void release_now();

}  // namespace lockstep::python
