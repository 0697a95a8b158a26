// The differences from PyTorch and the limits that docs/decisions/33-few-kernels-carry-the-operations.md lists, to the
// operation, the element, and the message.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::testing {

// A call of tests/parity/samples_reference.py.
struct SampleInput {
  const std::string& function;
  const nlohmann::json &inputs, &arguments;
};

// An element of an output or of a gradient that differs from PyTorch's.
struct DifferentElement {
  bool gradient = false;
  std::size_t tensor = 0, index = 0;
  double found = 0, expected = 0;
};

bool is_documented(const SampleInput& sample, const DifferentElement& element);

enum class Limit { none, type, other };
// Which limit an error tells of, if it is a documented one of this operation.
Limit documented_limit(const SampleInput& sample, const std::string& error);

}  // namespace lockstep::testing
