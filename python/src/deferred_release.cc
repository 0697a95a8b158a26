#include "deferred_release.h"

#include <mutex>
#include <utility>
#include <vector>

#include "interpreter_lock.h"

namespace lockstep::python {
namespace {

// Never destroyed, because tensors may outlive static objects.
struct Waiting {
  std::mutex mutex;
  std::vector<std::function<void()>> releases;
};
Waiting& waiting() {
  static auto& list = *new Waiting;
  return list;
}

}  // namespace

void release_now() {
  std::vector<std::function<void()>> releases;
  {
    const std::lock_guard lock(waiting().mutex);
    releases.swap(waiting().releases);
  }
  for (const auto& release : releases) release();
}

void release_later(std::function<void()> release) {
  if (interpreter_is_over()) return;
  if (PyGILState_Check() != 0) return release();
  {
    const std::lock_guard lock(waiting().mutex);
    waiting().releases.push_back(std::move(release));
  }
  // If the interpreter's own list is full, the calls in it that are ours empty our list.
  Py_AddPendingCall(
      [](void*) {
        release_now();
        return 0;
      },
      nullptr);
}

}  // namespace lockstep::python
