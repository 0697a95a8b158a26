// Models whose forward() takes several inputs or returns several outputs: net(a, b) calls it.
//
//   struct Net : ModuleOf<Net> {
//     Linear& image = make<Linear>("image", 784, 64);
//     Linear& meta = make<Linear>("meta", 10, 64);
//     std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& m) { return {image(x), meta(m)}; }
//   };
//   auto [y, z] = net(x, m);
#pragma once

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Net is the class that derives from ModuleOf<Net>. Its forward() may have any inputs and outputs; net(...) places
// whole host tensors among the inputs, as Module::placed() does, and calls forward(). If forward() has one tensor as
// input but several outputs, it must take the input by value, as in `std::pair<Tensor, Tensor> forward(Tensor x)`: C++
// allows no override of Module::forward() with another return type.
template <typename Net>
class ModuleOf : public Module {
 public:
  template <typename... Xs>
  auto operator()(const Xs&... xs) {
    return call_model(static_cast<Net&>(*this), xs...);
  }

 private:
  // A lookup finds these before Module's, so that clang does not warn of a Net's forward() with other arguments.
  using Module::forward;
  void forward() = delete;
};

}  // namespace lockstep
