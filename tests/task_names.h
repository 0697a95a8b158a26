// The names of the tasks that a part of a program pushes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/push_observer.h"

namespace lockstep::testing {

inline std::vector<std::string> task_names(Engine& engine, const std::function<void()>& part) {
  struct Names final : PushObserver {
    void pushed(const Task& task) noexcept override { all.emplace_back(task.name); }
    void succeeded(const Resource&, const Resource&) noexcept override {}
    std::vector<std::string> all;
  };
  const auto names = std::make_shared<Names>();
  engine.set_push_observer(names);
  part();
  engine.set_push_observer(nullptr);
  return names->all;
}

}  // namespace lockstep::testing
