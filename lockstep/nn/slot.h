// A child of a model that may be replaced by a module of another class.
//
//   struct Net : Module {
//     Slot head = make_slot<Linear>("head", 512, 10);
//     Tensor forward(const Tensor& x) override { return head(x); }
//   };
//   net.replace("head", Sequential(Linear(512, 64), ReLU(), Linear(64, 5)));
#pragma once

#include <memory>
#include <utility>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Module::add_slot() makes it.
class Slot {
 public:
  Tensor operator()(const Tensor& x) const { return (**module_)(x); }
  Module& operator*() const { return **module_; }
  Module* operator->() const { return module_->get(); }

 private:
  friend class Module;
  explicit Slot(std::shared_ptr<std::shared_ptr<Module>> module) : module_(std::move(module)) {}
  std::shared_ptr<std::shared_ptr<Module>> module_;
};

}  // namespace lockstep
