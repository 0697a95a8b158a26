// Internal: a change of a parameter's replicas that is made ready first, so that a module changes all of its parameters
// or none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/passes.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/module_link.h"
#include "lockstep/nn/parameter.h"

namespace lockstep {

class ParameterChange {
 public:
  // These check, allocate, and compute. If they throw, the parameter is as before.
  static ParameterChange initialize(const Parameter& parameter, std::string name, const std::vector<Device>& devices,
                                    const Initializer& fallback, std::uint64_t seed);
  // Gives the parameter devices. Its values, the default initial values of this model, are made at their first use.
  static ParameterChange place(const Parameter& parameter, std::string name, const std::vector<Device>& devices,
                               std::shared_ptr<DefaultModel> model);
  // Moves the gradient, too, as if set_gradient() had set it. A parameter that is there already does not change at all.
  static ParameterChange move(const Parameter& parameter, const std::vector<Device>& devices);
  static ParameterChange move(const Parameter& parameter, DType dtype);
  // Replaces the replicas by new ones with these values, of the parameter's type and a shape that fits. Tasks that have
  // been pushed go on reading the old ones.
  static ParameterChange load(const Parameter& parameter, const Tensor& value);

  // Makes the change. Drops the gradient, unless the change is a move.
  void commit();

  // Returns the buffer that takes this one's place when a program assigns it this value: with the same devices, name,
  // and initial values for a reset(), in memory of its own. The old buffer keeps its value. If it has no devices yet,
  // the value waits for them. Throws where a write to the buffer would.
  static Parameter successor(const Parameter& buffer, const Tensor& value);

  // Returns the seed and the number of the model whose default values the parameter has, or will have; none if it was
  // initialized or loaded.
  static std::optional<DefaultModel::Start> default_start(const Parameter& parameter);

 private:
  friend class SameRunGuard;
  ParameterChange(const Parameter& parameter, const std::vector<Device>& devices);
  static std::shared_ptr<DefaultModel> default_model(const Parameter& parameter);
  static void set_default_model(const Parameter& parameter, std::shared_ptr<DefaultModel> model);
  void take_values();
  void take_gradient();

  std::shared_ptr<Parameter::State> state_;  // null: nothing changes
  std::optional<std::string> name_;          // none for a move
  Initializer fallback_;
  RandomKey key_{};
  std::shared_ptr<DefaultModel> model_;  // null: not by default
  std::vector<Device> devices_;
  std::optional<Shape> shape_;  // that becomes known
  DType dtype_;
  std::vector<Array> replicas_;
  Array gradient_;
  Passes passes_;  // the passes that made the gradient
};

// Use it to set values that continue a run, from a checkpoint or from rank 0: parameters that began with default values
// still count as such after set_data() (Parameter::by_default()). Otherwise the recipe of a second Trainer would depend
// on the number of ranks, and on whether the first Trainer was resumed.
class SameRunGuard {
 public:
  // Places the module if nobody did.
  explicit SameRunGuard(const Module& module);
  ~SameRunGuard();
  SameRunGuard(const SameRunGuard&) = delete;
  SameRunGuard& operator=(const SameRunGuard&) = delete;

 private:
  std::vector<std::pair<Parameter, std::shared_ptr<DefaultModel>>> models_;
};

}  // namespace lockstep
