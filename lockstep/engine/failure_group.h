// Internal: tasks whose failures are reported as one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/engine/resource.h"

namespace lockstep {

class DependencyGraph;

// Tasks such as those of a backward pass, whose roots are the losses: a label outside the classes fails a loss and,
// separately, the loss's gradient. Once a wait has thrown one of these failures, all of them count as reported.
struct FailureGroup {
  explicit FailureGroup(std::vector<Resource> data) : roots(std::move(data)) {}

  // The data that the tasks start from. Not every task reads it.
  const std::vector<Resource> roots;
  // The first graph that gets a task of the group. It writes this and `reported`; other graphs ignore the group.
  const DependencyGraph* graph = nullptr;
  // A wait has thrown the failure of one of the tasks.
  bool reported = false;
};

// Within a scope, tasks that this thread pushes belong to a group.
class FailureScope {
 public:
  explicit FailureScope(std::shared_ptr<FailureGroup> group)
      : group_(std::move(group)), outer_(std::exchange(innermost(), this)) {}
  ~FailureScope() { innermost() = outer_; }
  FailureScope(const FailureScope&) = delete;
  FailureScope& operator=(const FailureScope&) = delete;
  // Null outside scopes.
  static std::shared_ptr<FailureGroup> current() { return innermost() ? innermost()->group_ : nullptr; }

 private:
  static FailureScope*& innermost() {
    thread_local FailureScope* scope = nullptr;
    return scope;
  }

  const std::shared_ptr<FailureGroup> group_;
  FailureScope* const outer_;
};

}  // namespace lockstep
