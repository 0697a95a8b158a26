// Gradients of several results in one walk. Tensor::backward() is for one loss.
//
//   backward({loss, hidden}, {Tensor(), gradient_of_hidden});
#pragma once

#include <initializer_list>
#include <span>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Computes the gradients of all leaves of `roots` in one walk. seeds[i] is the gradient of roots[i], with its
// placement. An undefined seed means 1 and needs a scalar root. Consumes the graph.
void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options = {});
// backward({loss, other}, {Tensor(), seed})
inline void backward(std::initializer_list<Tensor> roots, std::initializer_list<Tensor> seeds,
                     const BackwardOptions& options = {}) {
  backward(std::span(roots.begin(), roots.size()), std::span(seeds.begin(), seeds.size()), options);
}

}  // namespace lockstep
