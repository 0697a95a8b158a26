// Internal: the operations of a forward pass, as it describes them: an export of the model is made from them.
//
// lift() and record_mix() report each operation, so a new operation needs no code for traces. The traits that it passes
// to lift() say what decides its result besides its inputs. A reader throws if it does not know an operation or misses
// a trait, so that nothing silently becomes a constant.
//
//   return lift("softmax", placed, {x}, f, [&] { return OpTraits{"softmax", {{"axis", axis}}}; });
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/ops/origin.h"

namespace lockstep {

using OpAttribute = std::variant<std::int64_t, Scalar, std::vector<std::int64_t>>;

// An operation's kind, such as "conv", and its attributes. Without a kind, the operation's name is its kind.
struct OpTraits {
  std::string_view kind{};
  std::vector<std::pair<std::string_view, OpAttribute>> attributes{};
};

// A reference to a function that returns the traits, called only while a trace is on. The function must outlive it.
class OpTraitsOf {
 public:
  OpTraitsOf() = default;
  template <std::invocable F>
  requires std::same_as<std::invoke_result_t<const F&>, OpTraits> OpTraitsOf(const F& f)  // NOLINT: converts
      : object_(&f), call_([](const void* object) { return (*static_cast<const F*>(object))(); }) {}
  OpTraits operator()() const { return call_ ? call_(object_) : OpTraits{}; }

 private:
  const void* object_ = nullptr;
  OpTraits (*call_)(const void*) = nullptr;
};

// The numbers of a pair or triple, such as a stride.
std::vector<std::int64_t> op_numbers(const auto& range) { return {range.begin(), range.end()}; }

// While it lives, this thread reports its operations to it, unless an inner trace or a pause hides it.
class ForwardTrace {
 public:
  ForwardTrace();
  virtual ~ForwardTrace();
  ForwardTrace(const ForwardTrace&) = delete;
  ForwardTrace& operator=(const ForwardTrace&) = delete;
  // Null if this thread's operations are not traced.
  static ForwardTrace* current();

  // Undefined inputs stand for omitted ones.
  virtual void operation(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                         OpTraits traits) = 0;
  // y has x's elements: a detached handle.
  virtual void same(const Tensor& x, const Tensor& y) = 0;
  // A Function of the program has run. The trace does not know what it computed by other means than operations.
  virtual void function(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs) = 0;
  // The host is about to read x's elements, or to overwrite the elements of `to` by those of `from`.
  virtual void read(std::string_view what, const Tensor& x) = 0;
  virtual void write(const Tensor& to, const Tensor& from) = 0;
  // A module's forward() begins or ends. The address identifies the module.
  virtual void enter(const void* module) = 0;
  virtual void leave() = 0;

 private:
  friend class TracePause;
  ForwardTrace* outer_;
};

// While it lives, this thread's operations are not traced.
class TracePause {
 public:
  TracePause();
  ~TracePause();
  TracePause(const TracePause&) = delete;
  TracePause& operator=(const TracePause&) = delete;

 private:
  ForwardTrace* paused_;
};

// Marks the module whose forward() runs, which is the origin of the operations that it describes, traced or not.
class TracedModule {
 public:
  explicit TracedModule(const void* module) : origin_(ops::OriginScope::in(module)), trace_(ForwardTrace::current()) {
    if (trace_) trace_->enter(module);
  }
  ~TracedModule() {
    if (trace_) trace_->leave();
  }
  TracedModule(const TracedModule&) = delete;
  TracedModule& operator=(const TracedModule&) = delete;

 private:
  const ops::OriginScope origin_;
  ForwardTrace* trace_;
};

// Returns f(). A trace sees its operations as one, because another library may have one operation for them.
template <typename F>
Tensor traced_as_one(std::string_view name, std::initializer_list<Tensor> inputs, const F& f,
                     const OpTraitsOf& traits) {
  ForwardTrace* const trace = ForwardTrace::current();
  if (!trace) return f();
  const TracePause pause;
  Tensor y = f();
  trace->operation(name, {inputs.begin(), inputs.size()}, {&y, 1}, traits());
  return y;
}

}  // namespace lockstep
