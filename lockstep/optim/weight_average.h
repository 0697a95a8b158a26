// The exponential moving average of a model's weights, which often tests better than the weights themselves.
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
  // All parameters of the module, of which it holds handles. Buffers, such as those of batch norm, are not averaged.
  WeightAverage(const Module& module, double decay);

  // After each step of the optimizer: decay * average + (1 - decay) * weights, on each device, so that all have the same
  // bits. The first call takes the weights as they are.
  void update();
  // Exchanges the weights of the module and their averages. Nothing happens before the first update.
  void swap();

  double decay() const { return decay_; }
  // Averages under the parameters' names, for checkpoints. Waits. Empty before the first update.
  StateDict state_dict() const;
  // Strict: every parameter, of its shape, or none at all. An error changes nothing.
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

// While it lives, the module has the averages as its weights.
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
