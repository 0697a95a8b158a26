// Internal: an observer that also looks into steps, where operations, gradients, and the state are: the watch of
// `lockstep bisect`, histograms, the receipt.
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
  // Whether operations or gradients of this step are looked at: it must be described, not repeated from a recording.
  virtual bool observes(std::int64_t /*step*/) const { return false; }
  // The parts of a step, in this order; update() follows. `batch` comes once for each micro-batch. `loss_scale` is in
  // the gradients.
  virtual void begin(std::int64_t /*step*/) {}
  virtual void batch(std::span<const Tensor> /*parts*/) {}
  virtual void backward(const std::function<double()>& /*loss_scale*/) {}
  virtual void updated(std::span<const Tensor> /*losses*/) {}
  // An exception has ended the step, or none is under way.
  virtual void abandon() {}
  // The losses of all steps have been read: every ReceiptOptions::every steps, before a checkpoint, and at the end.
  // `urgent`: before a checkpoint, which must not be ahead of what the observer writes.
  virtual void settled(const SettledStep& /*state*/, bool /*urgent*/) {}
};

}  // namespace lockstep
