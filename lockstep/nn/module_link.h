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

// Where in the program a parameter was made. Together with its name, this decides its default values.
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
  // Set by ModuleTree: the name of the class, and what runs instead of forward().
  std::string kind;
  std::function<Tensor(const Tensor&)> call;
  // Set by ModuleTree: train(on) of a class of another language, for the module and those below it.
  std::function<void(bool)> mode;
  std::atomic<int> mode_guards{0};              // EvalGuards that have called it
  std::vector<std::pair<Module*, bool>> modes;  // before the first of them
  std::string own_state;                        // the method that saves or loads more than parameters and buffers
  std::uint64_t number = 0;                     // number of modules that the process made before
  // Used in the root:
  std::mutex placing;
  std::shared_ptr<DefaultModel> model;
};

// Throws if this thread computes another module's forward(), and the owner's parameters train, but belong neither to
// that module nor to an optimizer; see ForwardScope.
void check_registered(const ModuleLink& owner);

// Shared by the parameters of one model that have default values: the number of the first of them. So two models of one
// class begin with different values, and each has the same values in every run, whatever other threads do and whenever
// the model is first used. The first model of a seed has number 0. A parameter that was made after the model's first
// use, such as that of a new last layer, belongs to another DefaultModel.
class DefaultModel {
 public:
  // `lone`: for a parameter of no module. Its number is separate from the numbers of models.
  explicit DefaultModel(std::span<const ParameterOrigin> parameters, bool lone = false);
  bool has(const ParameterOrigin& parameter) const;

  // Together with a parameter's name, decides the key of its values.
  struct Start {
    std::uint64_t seed = 0, number = 0;
    bool operator==(const Start&) const = default;
  };
  // Takes the seed of the device's Runtime if the origin has no seed, or if the program gave the Runtime a seed.
  Start start(const ParameterOrigin& parameter, Device device);
  // Warns if start() found models of several threads. Call it without a lock, because the warning handler may need one.
  void warn_of_threads();

 private:
  struct Group {
    std::shared_ptr<Seeding> seeding;
    std::uint64_t first = 0, end = 0;  // range of its parameters' numbers
    std::uint64_t count = 0;
    std::optional<Start> start;
  };
  Group& group_of(const ParameterOrigin& parameter);

  const bool lone_;
  std::mutex mutex_;
  std::vector<Group> groups_;  // by seeding
  bool shared_ = false;        // models of other threads share the seed
};

}  // namespace lockstep
