// Internal: the operations of one forward pass as a list. Each has the indices of its inputs and outputs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/nn/module.h"

namespace lockstep {

enum class ValueSource : std::uint8_t { input, weight, constant, result };

struct PassValue {
  ValueSource source = ValueSource::result;
  Shape shape;
  DType dtype = DType::f32;
  std::string name;         // of a weight
  std::string bytes;        // of a constant, in plain order
  bool from_input = false;  // its elements may depend on those of the inputs
  // The Function of the program that computed it by other means than operations; empty if there is none.
  std::string unknown;
};

struct PassOperation {
  std::string name, kind;
  std::string module;       // path, empty for the model itself
  std::vector<int> inputs;  // -1: omitted
  std::vector<int> outputs;
  std::vector<std::pair<std::string_view, OpAttribute>> attributes;
  // "'softmax' in module 'attention.0'", for messages
  std::string where() const;
};

// A tensor's elements in plain order.
std::string bytes_of(const Tensor& x);

// Records the operations of this thread while it lives. Knows the model's parameters and buffers by their names.
class PassRecord : public ForwardTrace {
 public:
  PassRecord(Module& model, std::span<const Tensor> inputs);

  // Returns the index of a value. A tensor that the pass has not made becomes a new constant. Throws if a Function
  // computed the tensor (see PassValue::unknown); `user` names the operation that takes it.
  int number_of(const Tensor& x, std::string_view user);
  const std::vector<PassValue>& values() const { return values_; }
  const Tensor& tensor(int value) const { return tensors_[static_cast<std::size_t>(value)]; }
  const std::vector<PassOperation>& operations() const { return operations_; }

  void operation(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                 OpTraits traits) override;
  void same(const Tensor& x, const Tensor& y) override;
  void function(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs) override;
  void read(std::string_view what, const Tensor& x) override;
  void write(const Tensor& to, const Tensor& from) override;
  void enter(const void* module) override { modules_.push_back(module); }
  void leave() override { modules_.pop_back(); }

 private:
  int find(const Tensor& x) const;
  int add(const Tensor& x, PassValue value);
  std::string here() const;

  std::vector<PassValue> values_;
  std::vector<PassOperation> operations_;
  std::map<const void*, int> numbers_;        // by handle
  std::map<const void*, int> weights_;        // by memory
  std::map<const void*, std::string> paths_;  // by module
  std::vector<const void*> modules_;
  std::vector<Tensor> tensors_;  // by value
  std::vector<Tensor> handles_;  // other handles, kept so that no address is used twice
};

}  // namespace lockstep
