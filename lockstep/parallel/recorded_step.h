// A training step that is described once and then repeated: what it costs to describe (memory, gradients' graph, checks) is
// paid no more, and GPUs get it as one piece, a CUDA graph.
//
//   RecordedStep step([&](std::span<const Tensor> in) -> std::vector<Tensor> {
//     Tensor loss = cross_entropy(net(in[0]), in[1]);
//     loss.backward();
//     optimizer.step();
//     return {loss};
//   });
//   for (...) Tensor loss = step.run({x, labels})[0];
//
// The bits are those of the step described anew each time. What is to hold for that:
//
//   - What differs between steps comes in as an input, in tensors of the same shapes, types and devices; others make that
//     step be described. Learning rates and step counts of optimizers and the masks of dropout are seen to.
//   - The description pushes the same tasks each time, and does not look at what they compute. It does not copy from or to
//     the host's memory, nor exchange data with other processes: such a step is described each time, and why_not() says so.
//   - Nothing else of the description happens again: no counter counts, no schedule moves, and the module is in the mode that
//     it was in. So gradients are made and used within it: backward() and the optimizer's step(). What is given by value (the
//     clipping norm, momentum, decay) stays as it was recorded.
//   - Parameters are overwritten (set_data, load), and not initialized anew. Which of them are trained stays as it was recorded: make
//     another RecordedStep after freeze() or unfreeze(), as Trainer does.
//   - Outputs and inputs have no history. Tensors that it computes and that are no outputs, and gradients of leaves, are
//     overwritten by the next repetition.
//   - A recording keeps the memory of a step for itself. Where there is none for it, run() throws, and describes from then on.
//   - One thread at a time records on a Runtime.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class RecordedTasks;

struct RecordedStepOptions {
  // Steps that are described before one is recorded, at least one: shapes, states of optimizers and choices of algorithms settle.
  int warm_up = 2;
};

class RecordedStep {
 public:
  using Describe = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  // What `describe` refers to has to outlive this.
  explicit RecordedStep(Describe describe, RecordedStepOptions options = {});
  ~RecordedStep();

  // One step. `inputs`, at least one, are on devices of one Runtime; the outputs are the caller's to keep.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  // Whether there is a recording, which inputs like the recorded ones repeat.
  bool recorded() const { return tasks_ != nullptr; }
  // Empty, or why there is none: "it waits for data that it has computed".
  const std::string& why_not() const { return why_not_; }
  // Empty where a GPU gets it as one piece, or why not: "conv2d runs on cpu:0".
  std::string why_no_graph() const;

 private:
  std::vector<Tensor> record(std::span<const Tensor> inputs);
  std::vector<Tensor> repeat(std::span<const Tensor> inputs);

  const Describe describe_;
  const RecordedStepOptions options_;
  int described_ = 0;  // in a row, with inputs like the last ones
  std::string why_not_;
  // Like the last inputs; where there is a recording, what it reads.
  std::vector<Tensor> inputs_, outputs_;
  std::unique_ptr<RecordedTasks> tasks_;
};

}  // namespace lockstep
