// The parameters of an optimizer: in one list, or in groups that have options of their own.
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/nn/parameter.h"

namespace LOCKSTEP_API lockstep {

// As a group of PyTorch's: what is left out is the optimizer's.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
};

// Made of parameters, which form one group, or of groups. A transformer's biases and norms usually do not decay:
//
//   std::vector<Parameter> matrices, others;
//   for (const Parameter& p : net.parameters()) (p.shape().rank() > 1 ? matrices : others).push_back(p);
//   AdamW adamw({{.parameters = matrices}, {.parameters = others, .weight_decay = 0}}, {.lr = 1e-3, .weight_decay = 0.1});
class ParameterGroups {
 public:
  ParameterGroups() = default;
  ParameterGroups(std::vector<Parameter> parameters) { groups_.push_back({std::move(parameters)}); }
  ParameterGroups(std::initializer_list<Parameter> parameters) : ParameterGroups(std::vector(parameters)) {}
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(std::initializer_list<ParameterGroup> groups) : groups_(groups) {}

  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }
  std::size_t size() const { return groups_.size(); }

 private:
  std::vector<ParameterGroup> groups_;
};

}  // namespace lockstep
