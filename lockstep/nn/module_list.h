// A list of modules that their owner calls.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Holds modules named "0", "1", .... The owner calls them. M is the modules' class; the default works for modules with
// one input.
//
//   ModuleList<TransformerEncoderLayer> layers;
//   Net() { for (int i = 0; i < 6; ++i) layers.append(options); add("layers", layers); }
//   Tensor forward(const Tensor& x) override { Tensor y = x; for (auto& layer : layers) y = layer(y); return y; }
template <typename M = Module>
class ModuleList : public Module {
 public:
  // Makes an M from the arguments, and returns it.
  template <typename... Args>
  M& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  template <typename N>
  requires std::is_base_of_v<M, N> M& append(std::shared_ptr<N> module) {
    add(std::to_string(size()), module);
    modules_.push_back(module.get());
    return *modules_.back();
  }

  std::size_t size() const { return modules_.size(); }
  using Module::operator[];
  M& operator[](std::size_t i) const {
    check(i < size(), "module list: no module {}, there are {}", i, size());
    return *modules_[i];
  }

  class Iterator {
   public:
    explicit Iterator(M* const* place) : place_(place) {}
    M& operator*() const { return **place_; }
    Iterator& operator++() { return ++place_, *this; }
    bool operator!=(const Iterator& other) const { return place_ != other.place_; }

   private:
    M* const* place_;
  };
  Iterator begin() const { return Iterator(modules_.data()); }
  Iterator end() const { return Iterator(modules_.data() + modules_.size()); }

 private:
  std::vector<M*> modules_;  // children() own them
};

}  // namespace lockstep
