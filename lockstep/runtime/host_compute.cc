#include "lockstep/runtime/host_compute.h"

#include <memory>
#include <string>
#include <utility>

#include "lockstep/engine/failure.h"

namespace lockstep {
namespace {

// Null until the first use, and again after the thread's objects are destroyed; a use after that leaks a new context.
thread_local KernelContext* context_of_thread = nullptr;

struct ContextEnd {
  ~ContextEnd() { delete std::exchange(context_of_thread, nullptr); }
};

}  // namespace

Backend& host_backend() {
  static Backend& backend = *make_cpu_backend().release();
  return backend;
}

KernelContext& host_context() {
  if (context_of_thread == nullptr) {
    context_of_thread = host_backend().make_context(nullptr, 1, nullptr).release();
    thread_local const ContextEnd end;
  }
  return *context_of_thread;
}

void fail_on_host(std::string_view name, std::exception_ptr cause) {
  std::string what = "an exception that is not a std::exception";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  throw TaskError(std::make_shared<const Failure>(Failure{
      .task = std::string(name), .cause = std::move(cause), .message = fmt::format("{} on host: {}", name, what)}));
}

}  // namespace lockstep
