// Averages of a model's weights, and a guard that puts them in the weights' place.
#pragma once

#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/nn/state_dict.h"

namespace LOCKSTEP_API lockstep {

// The exponential moving average of a model's weights. It often gives a better test accuracy than the weights
// themselves.
//
//   WeightAverage average(net, 0.999);
//   for (...) { loss.backward(); sgd.step(); average.update(); }
//   { AveragedWeights averaged(average); evaluate(net, ...); save_weights("net.safetensors", net); }
class WeightAverage {
 public:
  // Averages all parameters of the module; one that modules share has its first name. Does not average buffers, such as
  // those of batch norm. Throws unless 0 <= decay < 1.
  WeightAverage(const Module& module, double decay);
  // No copies: they would share the averages. Keep state_dict() instead.
  WeightAverage(WeightAverage&&) = default;
  WeightAverage& operator=(WeightAverage&&) = default;

  // Call it after each step of the optimizer. The average becomes decay * average + (1 - decay) * weights, with the
  // same bits on each device. The first call copies the weights, and waits for the step. After a step that was left out
  // because its batch failed, the average stays as it is.
  void update();
  // Swaps the module's weights and their averages. Does nothing before the first update.
  void swap();

  double decay() const { return decay_; }
  // The averages under the parameters' names, for checkpoints. Waits. Empty before the first update.
  StateDict state_dict() const;
  // Strict: `state` must be empty or hold every parameter, in its shape and type; any other state changes nothing.
  void load_state_dict(const StateDict& state);
  // Throws where load_state_dict() would, but accepts any size for extents that are not known yet.
  void check_state_dict(const StateDict& state) const;

 private:
  friend class AveragedWeights;
  struct Entry {
    std::string name;
    Parameter parameter;
    std::vector<Array> averages;  // by device; none before the first update
  };
  // Returns the parameter's memory on the device of averages[device]. Throws if the module has moved.
  static Array weight_beside(const Entry& entry, std::size_t device);
  std::vector<const Tensor*> match(const StateDict& state) const;

  std::vector<Entry> entries_;
  double decay_;
};

// Replaces the module's weights by their averages for the lifetime of the object. Keeps a copy of the weights, so that
// the destructor needs no memory. Changes of the weights in between are lost.
class AveragedWeights {
 public:
  explicit AveragedWeights(const WeightAverage& average);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  struct Replica {
    Array place, weight;  // the parameter's memory, and a copy of what it held
  };
  std::vector<Replica> replicas_;
};

}  // namespace lockstep
