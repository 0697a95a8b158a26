// Internal: an observer that also sees operations, gradients, and the state within steps: the watch of `lockstep
// bisect`, histograms, the receipt.
#pragma once

#include <functional>
#include <span>

#include "lockstep/autograd/tensor.h"
#include "lockstep/receipt/state_digest.h"
#include "lockstep/train/training_observer.h"

namespace lockstep {

// The run after a step whose loss has been read.
struct SettledStep {
  std::int64_t step = 0;
  double loss = 0;
  std::function<StateDigest()> digest;  // waits for the values
};

class StepObserver : public TrainingObserver {
 public:
  // Returns whether it reads operations or gradients of this step. Such a step is not repeated from a recording.
  virtual bool observes(std::int64_t /*step*/) const { return false; }
  // Called for the parts of a step, in this order; update() follows. `batch` is called for each micro-batch. The
  // gradients are multiplied by `loss_scale`.
  virtual void begin(std::int64_t /*step*/) {}
  virtual void batch(std::span<const Tensor> /*parts*/) {}
  virtual void backward(const std::function<double()>& /*loss_scale*/) {}
  virtual void updated(std::span<const Tensor> /*losses*/) {}
  // Called before abort(): an exception may have ended a step before its updated().
  virtual void abandon() {}
  // Called when the losses of all steps have been read: every ReceiptOptions::every steps, before a checkpoint, and at
  // the end. `urgent`: before a checkpoint, which must not be newer than what the observer writes, and at the end.
  virtual void settled(const SettledStep& /*state*/, bool /*urgent*/) {}
};

}  // namespace lockstep
