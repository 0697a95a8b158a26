#include "lockstep/autograd/function.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>
#include <utility>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// `app::Square`, as its author wrote it.
std::string class_name(const ErasedFunction& function) {
  const char* mangled = function.type().name();
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr),
                                                         &std::free);
  return name ? name.get() : mangled;
}

// The function whose forward() this thread runs, for what it saves.
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

// The properties that a gradient shares with its input, without the input's memory.
struct Outline {
  bool defined;
  Kind kind;
  Shape shape;
  DType dtype;
  std::vector<Device> devices;
  std::shared_ptr<const Placement> at;
  Cut cut;

  explicit Outline(const Tensor& t)
      : defined(t.defined()), kind(t->kind), shape(t.shape()), dtype(t.dtype()), devices(t.devices()), at(t->at),
        cut(t->cut) {}
  bool fits(const Tensor& gradient) const {
    const Outline other(gradient);
    // sum_to() leaves the only sample of a batch where it is, because there is nothing to add.
    if (kind == Kind::replicated && other.kind == Kind::cut) {
      return shape == other.shape && dtype == other.dtype && shape[other.cut.axis] == 1;
    }
    if (kind == Kind::cut && (other.cut != cut || !same_placement(at, other.at))) return false;
    // A whole gradient suffices for a replicated input, because it is the same everywhere.
    const bool same_kind = kind == other.kind || (kind == Kind::replicated && other.kind == Kind::whole);
    return defined && same_kind && shape == other.shape && dtype == other.dtype &&
           (kind != Kind::whole || devices == other.devices);
  }
  std::string str() const {
    if (!defined) return "none";
    const std::string how = kind == Kind::cut          ? fmt::format("cut over the batch on axis {}", cut.axis)
                            : kind == Kind::replicated ? "replicated"
                                                       : "whole";
    return fmt::format("{} {} on {}, {}", shape.str(), name(dtype), describe_devices(devices), how);
  }
};

// The gradient of an output as a tensor with the output's kind and placement.
Tensor as_tensor(const Gradient& g, const Outline& output, const BackwardPass& pass) {
  if (!g.defined()) return {};
  if (output.kind != Kind::cut) {
    const TotalGradient total(g, output.kind == Kind::replicated && output.at ? output.at : pass.at);
    std::vector<Array> parts;
    for (Device device : output.devices) parts.push_back(total.on(device));
    if (output.kind == Kind::replicated) return replicated_tensor(std::move(parts), output.at);
    return output.at ? shard_tensor(output.at, parts[0]) : Tensor(parts[0]);
  }
  return cut_tensor(output.at, output.cut, cut_parts(g, *output.at, output.cut, output.shape, output.dtype));
}

void add_tensor(Gradient& sum, const Tensor& g, const Outline& input) {
  switch (g->kind) {
    case Kind::whole: return sum.add_single(g->array());
    case Kind::replicated:
      for (Device device : g.devices()) sum.add_part(g->on(device));
      return;
    case Kind::cut:
      for (std::size_t s = 0; s < g->parts.size(); ++s) {
        const auto [shard, device] = g->at->slots()[s];
        const bool counts = g->at->rows_of(shard) > 0;
        Array part = g->parts[s];
        // A shard without samples has an empty part. Its share of a sum is zeros of the input's shape.
        if (input.kind != Kind::cut && !counts) {
          ops::ShardScope scope(shard);
          part = ops::full(input.shape, 0, input.dtype, device);
        }
        sum.add_addend(shard, part, counts);
      }
  }
}

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
  const std::string name = class_name(*function);
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
  return record_mix(name, inputs, std::move(outputs),
                    [function = std::move(function), in, out](const Node& node, const BackwardPass& pass,
                                                              std::span<const Gradient> dy, std::span<Gradient> dx) {
                      std::vector<Tensor> grads;
                      for (std::size_t i = 0; i < out.size(); ++i) grads.push_back(as_tensor(dy[i], out[i], pass));
                      const std::vector<Tensor> found = function->backward(grads);
                      check(found.size() == in.size(),
                            "backward of {}: {} gradients, expected one for each of {} inputs", node.name, found.size(),
                            in.size());
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
}

}  // namespace lockstep
