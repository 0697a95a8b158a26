// Internal: a change of a parameter's replicas that is made ready first, so that a module changes all of its parameters
// or none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/parameter.h"

namespace lockstep {

class ParameterChange {
 public:
  // These check, allocate, and compute. If they throw, the parameter is as before.
  static ParameterChange initialize(const Parameter& parameter, std::string name, const std::vector<Device>& devices,
                                    const Initializer& fallback, std::uint64_t seed);
  // Gives it devices. Its values, by default initial ones of this model, are made when they are first needed.
  static ParameterChange place(const Parameter& parameter, std::string name, const std::vector<Device>& devices,
                               std::shared_ptr<DefaultModel> model);
  static ParameterChange move(const Parameter& parameter, const std::vector<Device>& devices);
  static ParameterChange move(const Parameter& parameter, DType dtype);
  // Replaces the replicas by new ones with these values, of the parameter's type and a shape that fits. Tasks that have
  // been pushed go on reading the old ones.
  static ParameterChange load(const Parameter& parameter, const Tensor& value);

  // Drops the gradient.
  void commit();

 private:
  ParameterChange(const Parameter& parameter, const std::vector<Device>& devices);
  void take_values();

  std::shared_ptr<Parameter::State> state_;
  std::optional<std::string> name_;  // none for a move
  Initializer fallback_;
  RandomKey key_{};
  std::shared_ptr<DefaultModel> model_;  // null: not by default
  std::vector<Device> devices_;
  std::optional<Shape> shape_;  // that becomes known
  DType dtype_;
  std::vector<Array> replicas_;
};

}  // namespace lockstep
