// Residual nets (He et al. 2015): the ResNet-18 of the tutorials for small images, and those of torchvision.
//
//   auto net = resnet18();
//   net->initialize(Normal(0.01));  // without this line: PyTorch's initial values
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// ResNet-18 for small images (D2L 13.6), [N, C, H, W] -> logits [N, classes]: no max pool, 3x3 stem, any H and W. The
// first batch sets C; later batches must agree. For large images, use torchvision::resnet18() below.
std::unique_ptr<Sequential> resnet18(std::int64_t classes = 10);

struct ResNetOptions {
  // Each block has three convolutions (1x1, 3x3, and 1x1 with four times the channels) instead of two (3x3).
  bool bottleneck = false;
  std::array<int, 4> layers{2, 2, 2, 2};  // blocks at 64, 128, 256, and 512 channels
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
};

// A residual net for large images (He et al. 2015), [N, in_channels, H, W] -> [N, num_classes]. H and W may be any,
// usually 224. Its children are torchvision's, and it loads torchvision's weight files: conv1, bn1, relu, maxpool,
// layer1 to layer4, avgpool, fc; layer2.0.downsample.0 is the convolution on a shortcut. Throws if an option is below
// 1.
//
//   net->replace("maxpool", Identity());  // for small images
class ResNet : public Module {
 public:
  explicit ResNet(const ResNetOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::shared_ptr<Sequential> layer(int blocks, std::int64_t channels, std::int64_t stride, bool bottleneck);

  std::int64_t channels_ = 64;  // output channels of the last block so far
  Conv2d conv1_;
  BatchNorm2d bn1_;
  ModuleSlot relu_, maxpool_, avgpool_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  ModuleSlot fc_;
};

// torchvision's models, with its names, shapes, and numbers of parameters.
//
//   auto net = torchvision::resnet18();
//   load_weights("resnet18.safetensors", *net);
//   net->replace("fc", Linear(512, 5));  // for fine-tuning: any module from [N, 512]
namespace torchvision {
std::unique_ptr<ResNet> resnet18(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet34(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet50(std::int64_t num_classes = 1000);
}  // namespace torchvision

}  // namespace lockstep
