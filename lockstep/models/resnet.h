// Residual nets for large images (He et al. 2015), with the names and shapes of torchvision: their files of weights
// load. Models of the tutorials are in models.h.
#pragma once

#include <array>
#include <memory>

#include "lockstep/nn/container.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

struct ResNetOptions {
  // Blocks of three convolutions, 1x1, 3x3, and 1x1 with four times the channels, instead of two 3x3.
  bool bottleneck = false;
  std::array<int, 4> layers{2, 2, 2, 2};  // blocks at 64, 128, 256, and 512 channels
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
};

// [N, in_channels, H, W] -> [N, num_classes]. Parameters are conv1, bn1, layer1 to layer4, fc; layer2.0.downsample.0
// is the convolution on a shortcut.
class ResNet : public Module {
 public:
  explicit ResNet(const ResNetOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Sequential> layer(int blocks, std::int64_t channels, std::int64_t stride, bool bottleneck);

  std::int64_t channels_ = 64;  // of the last block so far
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  Linear fc_;
};

std::unique_ptr<ResNet> resnet34(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet50(std::int64_t num_classes = 1000);

}  // namespace lockstep
