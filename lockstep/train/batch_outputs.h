// Internal: what a model computes of a batch in an evaluation, before anything is measured.
#pragma once

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/train/evaluate.h"

namespace lockstep {

// Returns the outputs of EvaluateOptions::forward, else those of the module, and their targets, for one shard. Casts
// floating inputs to EvaluateOptions::dtype unless `forward` does, and outputs in bf16 and f16 to f32.
BatchOutputs batch_outputs(Module& module, const Example& batch, const EvaluateOptions& options);

// The same for a batch of one process, which is cut over EvaluateOptions::devices. Runs shard after shard, so a device
// has the activations of one at a time. Returns outputs and targets in host memory.
BatchOutputs batch_outputs_on_host(Module& module, const Example& batch, const EvaluateOptions& options);

}  // namespace lockstep
