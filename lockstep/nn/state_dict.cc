#include "lockstep/nn/state_dict.h"

#include <map>

namespace lockstep {
namespace {

std::vector<std::pair<std::string, Parameter>> entries(const Module& module) {
  auto all = module.named_parameters();
  auto buffers = module.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

}  // namespace

StateDict state_dict(const Module& module) {
  StateDict state;
  for (auto& [name, parameter] : entries(module)) {
    check(parameter.shape_known(), "state_dict: the shape of {} is not known yet; run the model once", name);
    state.emplace_back(name, parameter.host_data());
  }
  return state;
}

void load_state_dict(Module& module, const StateDict& state) {
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) {
    check(given.emplace(name, &tensor).second, "load_state_dict: {} is given twice", name);
  }
  auto mine = entries(module);
  // All checks before the first change.
  for (auto& [name, parameter] : mine) {
    auto it = given.find(name);
    check(it != given.end(), "load_state_dict: {} is missing", name);
    const Tensor& value = *it->second;
    check(value.dtype() == parameter.dtype(), "load_state_dict: {} is {}, expected {}", name, value,
          lockstep::name(parameter.dtype()));
    const Shape& shape = parameter.shape();
    bool fits = value.shape().rank() == shape.rank();
    for (int i = 0; fits && i < shape.rank(); ++i) fits = shape[i] == 0 || shape[i] == value.shape()[i];
    check(fits, "load_state_dict: {} has shape {}, expected {}", name, value.shape(), shape);
    check(parameter.initialized(), "load_state_dict: {} is not initialized; call initialize() first", name);
  }
  if (given.size() != mine.size()) {
    for (auto& [name, parameter] : mine) given.erase(name);
    fail("load_state_dict: {} is not in the model", given.begin()->first);
  }
  for (auto& [name, parameter] : mine) parameter.set_data(*given.at(name));
}

}  // namespace lockstep
