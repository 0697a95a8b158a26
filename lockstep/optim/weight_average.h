// The exponential moving average of a model's weights. It often has a better test accuracy than the weights themselves.
//
//   WeightAverage average(net, 0.999);
//   for (...) { loss.backward(); sgd.step(); average.update(); }
//   { AveragedWeights averaged(average); evaluate(net, ...); save_weights("net.safetensors", net); }
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

class WeightAverage {
 public:
  // Averages all parameters of the module. Buffers, such as those of batch norm, are not averaged.
  WeightAverage(const Module& module, double decay);

  // Call it after each step of the optimizer. The average becomes decay * average + (1 - decay) * weights, with the
  // same bits on each device. The first call copies the weights.
  void update();
  // Exchanges the weights of the module and their averages. Does nothing before the first update.
  void swap();

  double decay() const { return decay_; }
  // The averages under the parameters' names, for checkpoints. Waits. Empty before the first update.
  StateDict state_dict() const;
  // Strict: `state` has every parameter, in its shape, or is empty. An error changes nothing.
  void load_state_dict(const StateDict& state);

 private:
  struct Entry {
    std::string name;
    Parameter parameter;
    std::vector<Array> averages;  // by device; none before the first update
  };
  std::vector<Entry> entries_;
  double decay_;
};

// Replaces the module's weights by their averages for the lifetime of the object.
class AveragedWeights {
 public:
  explicit AveragedWeights(WeightAverage& average) : average_(average) { average_.swap(); }
  ~AveragedWeights() { average_.swap(); }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage& average_;
};

}  // namespace lockstep
