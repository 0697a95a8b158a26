// Internal: what a parameter knows of its module, and what the parameters of a model that nobody initialized share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/nn/module.h"

namespace lockstep {

class DefaultModel;
class Seeding;  // runtime/random_state.h

// Where in the program a parameter was made, which decides its default values beside its name.
struct ParameterOrigin {
  std::shared_ptr<Seeding> seeding;  // null: the program had several Runtimes
  std::uint64_t number = 0;          // the thread's trainable parameters before it
  std::uint64_t thread = 0;
  bool trainable = true;
};

// A module's place in its tree. It moves along with the module, and its end tells children and parameters that the
// module is gone.
struct ModuleLink {
  Module* module = nullptr;
  std::weak_ptr<ModuleLink> parent;  // of the first module that it was added to
  // Of ModuleTree: the name of the class, and what runs instead of forward().
  std::string kind;
  std::function<Tensor(const Tensor&)> call;
  // Of ModuleTree: train(on) of a class of another language, for the module and those below it.
  std::function<void(bool)> mode;
  std::atomic<int> mode_guards{0};              // EvalGuards that have called it
  std::vector<std::pair<Module*, bool>> modes;  // before the first of them
  std::string own_state;                        // the method that saves or loads more than parameters and buffers
  std::uint64_t number = 0;                     // the modules of the process before
  // Used in the root:
  std::mutex placing;
  std::shared_ptr<DefaultModel> model;
};

// Throws if this thread computes another module's forward(), and the parameters of this one train, but are not known to
// that module nor to an optimizer; see ForwardScope.
void check_registered(const ModuleLink& owner);

// What the parameters of one model whose values are made by default share: the number of the first of them. So two
// models of one class begin with different values, and each has the same in every run, whatever other threads do and
// whenever it is used first. The first model of a seed has number 0. A parameter that was made after the model's first
// use, such as that of a new last layer, belongs to another DefaultModel.
class DefaultModel {
 public:
  // lone: of a parameter of no module, which has a number of its own kind.
  explicit DefaultModel(std::span<const ParameterOrigin> parameters, bool lone = false);
  bool has(const ParameterOrigin& parameter) const;

  // What keys the values of a parameter, with its name.
  struct Start {
    std::uint64_t seed = 0, number = 0;
    bool operator==(const Start&) const = default;
  };
  // `device` is asked for its Runtime's seed where the origin has none, or where the program gave one to the Runtime.
  Start start(const ParameterOrigin& parameter, Device device);
  // Of what start() has found. Call it without a lock, because the handler of warnings may need one.
  void warn_of_threads();

 private:
  struct Group {
    std::shared_ptr<Seeding> seeding;
    std::uint64_t first = 0, end = 0;  // numbers of its parameters
    std::uint64_t count = 0;
    std::optional<Start> start;
  };
  Group& group_of(const ParameterOrigin& parameter);

  const bool lone_;
  std::mutex mutex_;
  std::vector<Group> groups_;  // by seeding
  bool shared_ = false;        // the seed, with models of other threads
};

}  // namespace lockstep
