#include "lockstep/autograd/function.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>
#include <utility>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/outline.h"
#include "lockstep/autograd/program_function.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Name of the class as its author wrote it, such as `app::Square`.
std::string name_of(const ErasedFunction& function) {
  if (const auto* const program = dynamic_cast<const ProgramFunction*>(&function)) return program->name();
  const char* mangled = function.type().name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name ? name.get() : mangled;
}

bool takes_zeros(const ErasedFunction& function) {
  const auto* const program = dynamic_cast<const ProgramFunction*>(&function);
  return program && program->takes_zeros();
}

// Name of the function whose forward() this thread runs; the tensors that it saves keep the name for errors.
thread_local const std::string* forward_of = nullptr;

class ForwardScope {
 public:
  explicit ForwardScope(const std::string& name) : outer_(std::exchange(forward_of, &name)) {}
  ~ForwardScope() { forward_of = outer_; }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  const std::string* outer_;
};

}  // namespace

SavedTensor::SavedTensor(const Tensor& t) : tensor_(t.detach()), function_(forward_of ? *forward_of : "SavedTensor") {
  for (const Array& part : t->parts) versions_.push_back(part.storage()->written());
}

const Tensor& SavedTensor::get() const {
  for (std::size_t i = 0; i < versions_.size(); ++i) {
    SavedArray(tensor_->parts[i], versions_[i]).get(function_);
  }
  return tensor_;
}

std::vector<Tensor> apply_function(std::shared_ptr<ErasedFunction> function, std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs;
  const std::string name = name_of(*function);
  {
    const NoGradGuard no_grad;
    const ForwardScope scope(name);
    std::vector<Tensor> detached;
    for (const Tensor& input : inputs) detached.push_back(input.detach());
    outputs = function->forward(detached);
    // A forward that returns its input must not give the input itself a history.
    for (Tensor& output : outputs) output = output.detach();
  }
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->function(name, inputs, outputs);
  if (!needs_grad(inputs)) return outputs;
  const std::vector<Outline> in(inputs.begin(), inputs.end()), out(outputs.begin(), outputs.end());
  std::vector<Tensor> results =
      record_mix(name, inputs, std::move(outputs),
                 [function = std::move(function), in, out](const Node& node, const BackwardPass& pass,
                                                           std::span<const Gradient> dy, std::span<Gradient> dx) {
                   std::vector<Tensor> grads;
                   for (std::size_t i = 0; i < out.size(); ++i) {
                     const bool zeros = !dy[i].defined() && takes_zeros(*function);
                     grads.push_back(zeros ? zeros_of(out[i], pass) : as_tensor(dy[i], out[i], pass));
                   }
                   const std::vector<Tensor> found = function->backward(grads);
                   check(found.size() == in.size(), "backward of {}: {} gradients, expected one for each of {} inputs",
                         node.name, found.size(), in.size());
                   for (std::size_t i = 0; i < in.size(); ++i) {
                     // The library's operations return correct gradients. Without this check, a user's mistake would
                     // surface far away.
                     if (!found[i].defined()) continue;
                     if (!in[i].fits(found[i])) {
                       fail("backward of {}: the gradient of input {} is {}, expected {}", node.name, i,
                            Outline(found[i]).str(), in[i].str());
                     }
                     if (node.needs(i)) add_tensor(dx[i], found[i], in[i]);
                   }
                 });
  // Whole numbers have no gradient.
  for (Tensor& y : results) {
    if (!is_floating(y.dtype())) y = y.detach();
  }
  return results;
}

}  // namespace lockstep
