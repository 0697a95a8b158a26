#include "lockstep/autograd/function.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <typeinfo>

#include "lockstep/autograd/node.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// `app::Square`, as its author wrote it.
std::string class_name(const Function& function) {
  const char* mangled = typeid(function).name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name ? name.get() : mangled;
}

// What a gradient has in common with its input, without the memory of that.
struct Like {
  bool defined;
  Shape shape;
  DType dtype;
  Device device;

  explicit Like(const Tensor& t) : defined(t.defined()), shape(t.shape()), dtype(t.dtype()), device(t.device()) {}
  bool operator==(const Like&) const = default;
  std::string str() const {
    return defined ? fmt::format("{} {} on {}", shape.str(), name(dtype), device.name()) : "none";
  }
};

// The engine's operations make theirs right; a user's mistake would otherwise show far from where it was made, or never.
void check_gradients(const Node& node, std::span<const Tensor> grads, std::span<const Like> inputs) {
  for (std::size_t i = 0; i < std::min(grads.size(), inputs.size()); ++i) {
    check(!grads[i].defined() || Like(grads[i]) == inputs[i], "backward of {}: the gradient of input {} is {}, expected {}",
          node.name, i, grads[i].describe(), inputs[i].str());
  }
}

}  // namespace

std::vector<Tensor> apply_function(std::shared_ptr<Function> function, std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs;
  {
    NoGradGuard no_grad;
    ops::ShardScope scope(shard_of(inputs));
    std::vector<Tensor> detached;
    for (const Tensor& input : inputs) detached.push_back(input.detach());
    outputs = function->forward(detached);
    // A forward that returns its input must not give the input itself a history.
    for (Tensor& output : outputs) output = output.detach();
  }
  if (!needs_grad(inputs)) return outputs;
  std::vector<Like> expected(inputs.begin(), inputs.end());
  const std::string name = class_name(*function);
  return record(name, inputs, std::move(outputs),
                [function = std::move(function), expected = std::move(expected)](const Node& node,
                                                                                 std::span<const Tensor> grads) {
                  std::vector<Tensor> found = function->backward(grads);
                  check_gradients(node, found, expected);
                  return found;
                });
}

}  // namespace lockstep
