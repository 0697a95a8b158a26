// A multilayer perceptron.
//
//   auto net = mlp();
//   net->initialize(Normal(0.01), devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// One hidden layer of 256 units with ReLU, on the flattened image: [N, C, H, W] -> logits [N, classes]. The first batch
// sets C, H, and W; later batches must agree.
std::unique_ptr<Sequential> mlp(std::int64_t classes = 10);

}  // namespace lockstep
