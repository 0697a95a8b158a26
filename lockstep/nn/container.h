// Modules that contain modules: Sequential and ModuleList.
#pragma once

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Runs modules one after the other. They are named "0", "1", ..., or as the caller says. A batch norm and the ReLU
// after it run as one operation.
//
//   Sequential net;
//   net.append(Conv2d({.out_channels = 64, .kernel = 3})).append(BatchNorm2d()).append(ReLU());
//   net.at<Conv2d>(0).weight.set_trainable(false);
class Sequential : public Module {
 public:
  Sequential() = default;

  // Makes the module in place, from its options or from other arguments: append<Conv2d>({.out_channels = 64}).
  template <typename M>
  Sequential& append(const typename M::Options& options) {
    return append(std::make_shared<M>(options));
  }
  template <typename M, typename... Args>
  Sequential& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  template <typename M>
  requires std::is_base_of_v<Module, M> Sequential& append(M&& module) {
    return append(std::make_shared<M>(std::move(module)));
  }
  Sequential& append(std::shared_ptr<Module> module) {
    return append(std::to_string(children().size()), std::move(module));
  }
  Sequential& append(std::string name, std::shared_ptr<Module> module) {
    add(std::move(name), std::move(module));
    return *this;
  }

  std::size_t size() const { return children().size(); }
  using Module::operator[];
  Module& operator[](std::size_t i) const {
    check(i < size(), "sequential: no module {}, there are {}", i, size());
    return *children()[i].module;
  }
  // Returns module i as an M. Throws if it has another class.
  template <typename M>
  M& at(std::size_t i) const {
    auto* const module = dynamic_cast<M*>(&(*this)[i]);
    if (!module) fail("sequential: module {} is {}, expected another class", i, (*this)[i].str());
    return *module;
  }

  Tensor forward(const Tensor& x) override;
};

// Holds modules named "0", "1", ...; the owner calls them. M is the modules' class; the default works for modules of
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
