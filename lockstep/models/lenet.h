// LeNet-5.
//
//   auto net = lenet();
//   net->initialize(Xavier{}, devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// LeNet-5 with ReLU and max pools: [N, C, H, W] -> logits [N, classes]. H and W are at least 12. The first batch sets
// C, H, and W; later batches must agree.
std::unique_ptr<Sequential> lenet(std::int64_t classes = 10);
// LeNet-5 as a value: LeNet net;
class LeNet : public Sequential {
 public:
  explicit LeNet(std::int64_t classes = 10) : Sequential(std::move(*lenet(classes))) {}
};

}  // namespace lockstep
