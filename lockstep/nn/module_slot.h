// A child of a model that may be replaced by a module of another class.
//
//   struct Net : Module {
//     ModuleSlot head = make_slot<Linear>("head", 512, 10);
//     Tensor forward(const Tensor& x) override { return head(x); }
//   };
//   net.replace("head", Sequential(Linear(512, 64), ReLU(), Linear(64, 5)));
#pragma once

#include <memory>
#include <utility>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class Module;  // nn/module.h

// Module::make_slot() and add_slot() make it.
class ModuleSlot {
 public:
  ModuleSlot() = default;  // for a member that the constructor assigns
  Tensor operator()(const Tensor& x) const;
  Module& operator*() const;
  Module* operator->() const;

 private:
  friend class Module;
  explicit ModuleSlot(std::shared_ptr<std::shared_ptr<Module>> module) : module_(std::move(module)) {}
  std::shared_ptr<std::shared_ptr<Module>> module_;
};

}  // namespace lockstep
