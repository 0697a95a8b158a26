#include "lockstep/nn/state_dict.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <vector>

#include "lockstep/nn/state_change.h"

namespace lockstep {
namespace {

std::vector<std::pair<std::string, Parameter>> entries(const Module& module) {
  auto all = module.named_parameters();
  auto buffers = module.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

// Masks in files without a bool type are u8.
bool can_cast(DType from, DType to) {
  return from == to || (is_floating(from) && is_floating(to)) || (is_mask(from) && is_mask(to));
}

// Returns the value as a host tensor of this type; a value that has the type as it is.
Tensor cast_on_host(const Tensor& value, DType to) {
  if (value.dtype() == to) return value;
  Tensor result = Tensor::host(value.shape(), to);
  visit_dtype(value.dtype(), [&](auto from_type) {
    visit_dtype(to, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      using Wide = std::conditional_t<is_half<From> || is_half<To>, float, double>;
      const std::vector<From> values = value.to_vector<From>();
      std::ranges::transform(values, result.template data_ptr<To>(),
                             [](From v) { return static_cast<To>(static_cast<Wide>(v)); });
    });
  });
  return result;
}

// A parameter that modules share has several names, whose values must be equal, because only one would be kept.
void check_shared(const std::vector<std::pair<std::string, Parameter>>& mine,
                  const std::map<std::string_view, const Tensor*>& given) {
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto& [name, parameter] = mine[i];
    const auto first = std::ranges::find(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(i), parameter,
                                         &std::pair<std::string, Parameter>::second);
    if (first == mine.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    const Tensor &a = *given.at(name), &b = *given.at(first->first);
    check(cast_on_host(a, DType::f64).to_vector<double>() == cast_on_host(b, DType::f64).to_vector<double>(),
          "load_state_dict: {} and {} are one parameter, expected equal values", name, first->first);
  }
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

namespace {

// Returns each parameter and buffer with its new value. Strict, as load_state_dict() is.
std::vector<std::pair<Parameter, Tensor>> matched(const Module& module, const StateDict& state) {
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) {
    check(given.emplace(name, &tensor).second, "load_state_dict: {} appears twice", name);
  }
  auto mine = entries(module);
  // All checks before the first change.
  for (auto& [name, parameter] : mine) {
    auto it = given.find(name);
    check(it != given.end(), "load_state_dict: {} is missing from the state", name);
    const Tensor& value = *it->second;
    check(can_cast(value.dtype(), parameter.dtype()), "load_state_dict: {} is {}, expected {}", name, value,
          lockstep::name(parameter.dtype()));
    check(parameter.fits(value.shape()), "load_state_dict: {} has shape {}, expected {}", name, value.shape(),
          parameter.shape());
  }
  check_shared(mine, given);
  if (given.size() != mine.size()) {
    for (auto& [name, parameter] : mine) given.erase(name);
    fail("load_state_dict: {} is not in the model", given.begin()->first);
  }
  std::vector<std::pair<Parameter, Tensor>> values;
  for (auto& [name, parameter] : mine) values.emplace_back(parameter, cast_on_host(*given.at(name), parameter.dtype()));
  return values;
}

}  // namespace

void check_state_dict(const Module& module, const StateDict& state) { matched(module, state); }

void load_state_dict(Module& module, const StateDict& state) {
  for (auto& [parameter, value] : matched(module, state)) parameter.set_data(value);
}

std::vector<ParameterChange> changes_to(Module& module, const StateDict& state) {
  std::vector<ParameterChange> changes;
  for (const auto& [parameter, value] : matched(module, state))
    changes.push_back(ParameterChange::load(parameter, value));
  return changes;
}

UnmatchedEntries load_matching_state(Module& module, const StateDict& state) {
  std::map<std::string_view, const Tensor*> given;
  for (auto& [name, tensor] : state) {
    check(given.emplace(name, &tensor).second, "load_matching_state: {} is given twice", name);
  }
  UnmatchedEntries unmatched;
  std::vector<std::pair<Parameter, const Tensor*>> loaded;
  for (auto& [name, parameter] : entries(module)) {
    const auto it = given.find(name);
    if (it == given.end()) {
      unmatched.missing.push_back(name);
      continue;
    }
    const Tensor& value = *it->second;
    given.erase(it);
    if (parameter.fits(value.shape()) && can_cast(value.dtype(), parameter.dtype())) {
      loaded.emplace_back(parameter, &value);
    } else {
      unmatched.different.push_back(fmt::format("{} {}, expected {} {}", name, value.describe(),
                                                parameter.shape().str(), lockstep::name(parameter.dtype())));
    }
  }
  for (const auto& [name, tensor] : given) unmatched.unexpected.emplace_back(name);
  check(!loaded.empty(), "load_matching_state: none of {} tensors fits the model", state.size());
  for (auto& [parameter, value] : loaded) parameter.set_data(cast_on_host(*value, parameter.dtype()));
  return unmatched;
}

}  // namespace lockstep
