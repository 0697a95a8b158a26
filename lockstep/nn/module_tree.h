// Builds a module part by part from outside its class, for bindings of other languages, where modules get their
// parameters, buffers, and children by name, and compute with functions of that language.
//
//   auto net = std::make_shared<Module>();
//   ModuleTree tree(*net);
//   tree.set_kind("Net");
//   tree.set_child("fc", std::make_shared<Linear>(784, 10));
//   tree.set_call([&](const Tensor& x) { return net->module("fc")(flatten(x)); });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

class ModuleTree {
 public:
  explicit ModuleTree(Module& module) : module_(module) {}

  // Sets what Module::kind() returns.
  void set_kind(std::string kind) const;
  // Makes Module::operator() call `call` with the placed tensor, instead of forward(). `call` must not own the module.
  // Empty: forward() again.
  void set_call(std::function<Tensor(const Tensor& x)> call) const;
  // Tells that the module's class saves and loads its own part of a state with this method. A file of parameters and
  // buffers alone would lose that part, so saving or loading such a file throws.
  void set_own_state(std::string method) const;
  static void check_no_own_state(Module& module, std::string_view what);
  static bool has_call(const Module& module);
  // Makes Module::train(on) and EvalGuard call `mode` for the module and all below it, instead of setting their modes.
  void set_mode(std::function<void(bool on)> mode) const;
  // Returns a handle that stays with this parameter when a layer gets another parameter in its place.
  static Parameter own_handle(const Parameter& parameter);

  // Returns a new buffer with this value, for set_buffer() in place of `buffer`, on its devices and with its initial
  // values for a reset(). `buffer` keeps its value.
  static Parameter successor(const Parameter& buffer, const Tensor& value);

  enum class Entry : std::uint8_t { none, parameter, buffer, child };
  // Returns what the module itself has under this name.
  Entry find(std::string_view name) const;
  // Add an entry, or replace the one of the same name and kind, in its place; an entry of another kind is an error. A
  // layer computes with the new parameter from then on; optimizers keep the old one. Replacing a child that its parent
  // keeps by its class is an error, as in Module::replace().
  void set_parameter(const std::string& name, const Parameter& parameter) const;
  void set_buffer(const std::string& name, const Parameter& buffer) const;
  void set_child(const std::string& name, const std::shared_ptr<Module>& child) const;
  // Makes the parts of `inner` also those of this module, under the same names.
  void pass_on(const std::shared_ptr<Module>& inner) const;
  // Removes an entry. Throws for an unknown name, and if the module's class computes with the entry.
  void erase(const std::string& name) const;

  // The children in order. The name of a wrapped model is empty. `owner` is null for a child that its parent does not
  // own.
  struct Child {
    std::string name;
    Module* module;
    std::shared_ptr<Module> owner;
  };
  std::vector<Child> children() const;

  // Returns the first module that this one was added to; null if there is none.
  Module* parent() const;

  // These two concern this module alone, without its children.
  void set_training(bool on) const;
  std::string extra_repr() const { return module_.extra_repr(); }

 private:
  bool is_open() const;
  Module& module_;
};

// What Module::operator() does around a call, for calls with other arguments and results: reports its begin and end to
// exports. `output`, if it is one tensor, is for summaries.
class ModuleCall {
 public:
  explicit ModuleCall(Module& module);
  ~ModuleCall();
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;
  void report(const Tensor& output) const;

 private:
  Module& module_;
  struct Trace;
  std::unique_ptr<Trace> trace_;
};

}  // namespace lockstep
