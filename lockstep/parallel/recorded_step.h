// A training step that is described once and then repeated. A repetition saves the host time of description
// (allocation, the gradients' graph, checks), and GPUs run the step as one CUDA graph.
//
//   RecordedStep step([&](std::span<const Tensor> in) -> std::vector<Tensor> {
//     Tensor loss = cross_entropy(net(in[0]), in[1]);
//     loss.backward();
//     optimizer.step();
//     return {loss};
//   });
//   for (...) Tensor loss = step.run({x, labels})[0];
//
// The bits equal those of an ordinary loop, under these rules:
//
//   - Pass data that differs between steps as inputs: tensors of the same shapes, types, and devices. A step with other
//     inputs is described anew. Learning rates and step counts of optimizers and masks of dropout are updated
//     automatically.
//   - The description pushes the same tasks each time and does not read their results. A step that copies from or to
//     host memory, or exchanges data with other processes, is described each time, and why_not() says so.
//   - Other host code in the description does not run in repetitions: counters, schedules, and changes of mode have no
//     effect. Gradients must therefore be made and used within the step, by backward() and the optimizer's step().
//     Arguments passed by value (clipping norm) stay as recorded; after Optimizer::set_options(), which changes more
//     than rates, and after a change of gradients' hooks, the step is recorded anew.
//   - Overwrite parameters (set_data, load) instead of initializing them anew. The set of trained parameters stays as
//     recorded: make another RecordedStep after freeze() or unfreeze(), as Trainer does.
//   - Outputs and inputs have no history. The next repetition overwrites the gradients of leaves, and all tensors of
//     the step that are not outputs.
//   - A recording owns the memory of a step. If there is too little memory, run() throws, and later calls describe each
//     step.
//   - Only one thread at a time may record on a Runtime, and only one may run a RecordedStep; other threads get an
//     error.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

class InUse;  // base/in_use.h
class RecordedTasks;

struct RecordedStepOptions {
  // Number of ordinary steps before the recording, at least one. They set shapes, optimizer state, and algorithm
  // choices.
  int warm_up = 2;
};

class RecordedStep {
 public:
  using Describe = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

  // Everything that `describe` refers to must outlive this object.
  explicit RecordedStep(Describe describe, RecordedStepOptions options = {});
  ~RecordedStep();

  // Runs one step. `inputs`, at least one, are on devices of one Runtime. The caller may keep the outputs.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
  std::vector<Tensor> run(std::initializer_list<Tensor> inputs) {
    return run(std::span(inputs.begin(), inputs.size()));
  }

  // Whether there is a recording. Inputs like the recorded ones repeat it.
  bool recorded() const { return tasks_ != nullptr; }
  // Empty, or the reason why there is no recording: "it waits for data that it has computed".
  const std::string& why_not() const { return why_not_; }
  // Empty if a GPU runs the step as one graph, otherwise the reason why not: "conv2d runs on cpu:0".
  std::string why_no_graph() const;

 private:
  std::vector<Tensor> record(std::span<const Tensor> inputs);
  std::vector<Tensor> repeat(std::span<const Tensor> inputs);

  const Describe describe_;
  const RecordedStepOptions options_;
  int described_ = 0;  // consecutive described steps with inputs like the last ones
  std::string why_not_;
  // Before the recording: the last inputs. After it: the tensors that the recording reads and writes.
  std::vector<Tensor> inputs_, outputs_;
  std::unique_ptr<RecordedTasks> tasks_;
  const std::shared_ptr<InUse> use_;
};

}  // namespace lockstep
