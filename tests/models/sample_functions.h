// The functions that PyTorch's samples call (tests/parity/samples_reference.py), by the names in the file.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/autograd/functions.h"

namespace lockstep::testing {

// A sample's tensors and other arguments.
struct SampleCall {
  std::vector<Tensor> x;
  nlohmann::json a;

  const Tensor& operator[](std::size_t i) const { return x.at(i); }
  // Undefined if there are fewer.
  Tensor at(std::size_t i) const { return i < x.size() ? x[i] : Tensor(); }
  double number(const char* name) const;
  int integer(const char* name) const { return a.at(name).get<int>(); }
  bool flag(const char* name) const { return a.at(name).get<bool>(); }
  Dims dims(const char* name = "dims") const { return Dims(a.at(name).get<std::vector<int>>()); }
  Shape shape() const { return Shape(a.at("shape").get<std::vector<std::int64_t>>()); }
  Reduction reduction() const;
  std::optional<std::int64_t> optional(const char* name) const;
};

using SampleFunction = std::function<std::vector<Tensor>(const SampleCall&)>;
std::map<std::string, SampleFunction> sample_functions();

// A number as the file has it: JSON has no NaN and no infinity.
double sample_number(const nlohmann::json& value);

}  // namespace lockstep::testing
