#pragma once

#include "lockstep/nn/module.h"

namespace lockstep {

// Modules one after the other, named "0", "1", ... or as told. A batch norm and the ReLU after it run as one.
//
//   Sequential net;
//   net.append<Conv2d>(Conv2dLayerOptions{.out_channels = 64, .kernel = 3}).append<BatchNorm2d>().append<ReLU>();
class Sequential : public Module {
 public:
  Sequential() = default;

  template <typename M, typename... Args>
  Sequential& append(Args&&... args) {
    return append(std::make_shared<M>(std::forward<Args>(args)...));
  }
  Sequential& append(std::shared_ptr<Module> module) {
    return append(std::to_string(children().size()), std::move(module));
  }
  Sequential& append(std::string name, std::shared_ptr<Module> module) {
    add(std::move(name), std::move(module));
    return *this;
  }

  std::size_t size() const { return children().size(); }
  Module& operator[](std::size_t i) const { return *children().at(i).module; }

  Tensor forward(const Tensor& x) override;
};

}  // namespace lockstep
