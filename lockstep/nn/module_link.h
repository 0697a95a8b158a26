// Internal: what a parameter knows of its module, and what the parameters of a model that nobody initialized share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/device/device.h"
#include "lockstep/nn/module.h"

namespace lockstep {

class DefaultModel;

// A module's place in its tree. It moves along with the module, and its end tells children and parameters that the
// module is gone.
struct ModuleLink {
  Module* module = nullptr;
  std::weak_ptr<ModuleLink> parent;  // of the first module that it was added to
  // Of ModuleTree: the name of the class, and what runs instead of forward().
  std::string kind;
  std::function<Tensor(const Tensor&)> call;
  // Used in the root:
  std::mutex placing;
  std::shared_ptr<DefaultModel> model;
};

// A model whose values are made by default.
class DefaultModel {
 public:
  // The model's number among those of its devices' Runtime whose values were made by default, in the order of their
  // first uses: two models of one class begin with different values. The first has number 0. Making a Trainer is a use,
  // because the recipe has the number.
  std::uint64_t number(Device device);

  // That of a parameter of no module, which has a number of its own kind.
  explicit DefaultModel(bool lone_parameter = false) : lone_parameter_(lone_parameter) {}

 private:
  const bool lone_parameter_;
  std::mutex mutex_;
  std::optional<std::uint64_t> number_;
};

}  // namespace lockstep
