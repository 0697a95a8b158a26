// Internal: gradients as return values, which do not change grad() of leaves (torch.autograd.grad), and graphs that
// serve several passes.
#pragma once

#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace lockstep {

// The gradients of sum(outputs[i] * seeds[i]) with respect to `inputs`, which are leaves, parameters, or results with a
// history. An undefined seed means 1 and needs a scalar output. An input that no output depends on has an undefined
// gradient. Consumes the graph between outputs and inputs unless `retain_graph`.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs, std::span<const Tensor> seeds,
                         bool retain_graph = false);
// backward() of backward.h that keeps the graph, and the memory that it holds, for another pass.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options,
              bool retain_graph);

}  // namespace lockstep
