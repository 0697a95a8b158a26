// A multilayer perceptron.
//
//   auto net = mlp();
//   net->initialize(Normal(0.01), devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// Hidden layers with ReLU, by default one of 256 units, on the flattened image: [N, C, H, W] -> logits [N, classes].
// The first batch sets C, H, and W; later batches must agree.
std::unique_ptr<Sequential> mlp(std::int64_t classes = 10, const std::vector<std::int64_t>& hidden = {256});

}  // namespace lockstep
