#include "lockstep/train/batch_outputs.h"

#include <span>
#include <vector>

#include "lockstep/autograd/shards.h"
#include "lockstep/parallel/split.h"

namespace lockstep {

BatchOutputs batch_outputs(Module& module, const Example& batch, const EvaluateOptions& options) {
  BatchOutputs found;
  if (options.forward) {
    found = options.forward(batch);
    check(found.outputs.defined(), "evaluate: `forward` returned no outputs, expected what the metrics measure");
    if (!found.targets.defined()) found.targets = batch.back();
  } else {
    const Tensor& x = batch.at(0);
    found = {.outputs = module.forward(is_floating(x.dtype()) ? x.to(options.dtype) : x), .targets = batch.at(1)};
  }
  if (is_half_dtype(found.outputs.dtype())) found.outputs = found.outputs.to(DType::f32);
  return found;
}

BatchOutputs batch_outputs_on_host(Module& module, const Example& batch, const EvaluateOptions& options) {
  std::vector<Tensor> parts;
  for (const Tensor& part : batch) parts.push_back(split_and_load(part, options.devices, options.split));
  const std::vector<Tensor> found = per_shard(
      [&](std::span<const Tensor> shard) {
        BatchOutputs of_shard = batch_outputs(module, {shard.begin(), shard.end()}, options);
        return std::vector{std::move(of_shard.outputs), std::move(of_shard.targets)};
      },
      parts);
  return {.outputs = gather(found[0], kHost), .targets = gather(found[1], kHost)};
}

}  // namespace lockstep
