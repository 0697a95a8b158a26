#include "lockstep/nn/sequential.h"

#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/layers.h"

namespace lockstep {

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < size(); ++i) {
    auto* norm = dynamic_cast<BatchNorm2d*>(&(*this)[i]);
    if (norm && i + 1 < size() && dynamic_cast<ReLU*>(&(*this)[i + 1])) {
      y = norm->forward_fused(y, {}, true);
      ++i;
    } else {
      y = (*this)[i](y);
    }
  }
  return y;
}

std::vector<Tensor> Sequential::forward_shards(std::span<const Tensor> xs) {
  std::vector<Tensor> ys(xs.begin(), xs.end());
  for (std::size_t i = 0; i < size(); ++i) {
    auto* norm = dynamic_cast<BatchNorm2d*>(&(*this)[i]);
    if (norm && i + 1 < size() && dynamic_cast<ReLU*>(&(*this)[i + 1])) {
      ys = norm->forward_fused(ys, {}, true);
      ++i;
    } else {
      ys = (*this)[i].forward_shards(ys);
    }
  }
  return ys;
}

}  // namespace lockstep
