// Parameters in a list or under names, for modules that compute with several of a kind.
//
//   struct Net : Module {
//     ParameterList& rows = make<ParameterList>("rows");
//     Net() { for (int i = 0; i < 3; ++i) rows.append({.shape = {8}}); }  // "rows.0", "rows.1", "rows.2"
//     Tensor forward(const Tensor& x) override { return x * rows[0] + rows[1]; }
//   };
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// Holds parameters named "0", "1", ....
class ParameterList : public Module {
 public:
  // Makes a parameter, and returns it.
  Parameter append(ParameterOptions options) {
    return parameters_.emplace_back(add_parameter(std::to_string(size()), std::move(options)));
  }

  std::size_t size() const { return parameters_.size(); }
  using Module::operator[];
  Parameter operator[](std::size_t i) const {
    check(i < size(), "parameter list: no parameter {}, there are {}", i, size());
    return parameters_[i];
  }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }

 protected:
  std::string extra_repr() const override;

 private:
  std::vector<Parameter> parameters_;
};

// Holds parameters under the caller's names, in the order in which they were added. dict["left"] finds one, as in every
// module, and named_parameters(false) lists them.
class ParameterDict : public Module {
 public:
  // Makes a parameter, and returns it.
  Parameter append(std::string key, ParameterOptions options) {
    return add_parameter(std::move(key), std::move(options));
  }

  std::size_t size() const { return named_parameters(false).size(); }
  bool contains(std::string_view key) const;

 protected:
  std::string extra_repr() const override;
};

}  // namespace lockstep
