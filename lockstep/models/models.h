// Models for images: those of the tutorials, and torchvision's residual nets. Names of parameters equal those of the
// same models in PyTorch.
//
//   auto net = resnet18();
//   net->initialize(Normal(0.01), devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/nn/normalization.h"

namespace LOCKSTEP_API lockstep {

// The models for small images take [N, C, H, W] and return logits [N, classes]. The first batch sets C, and for LeNet
// and the MLP also H and W; later batches must agree.

// ResNet-18 for small images (D2L 13.6): no max pool, 3x3 stem. H and W are arbitrary. torchvision::resnet18() below is
// the one for large images.
std::unique_ptr<Sequential> resnet18(std::int64_t classes = 10);
// LeNet-5 with ReLU and max pools. H and W are at least 12: [N, 1, 28, 28] for Fashion-MNIST.
std::unique_ptr<Sequential> lenet(std::int64_t classes = 10);
// One hidden layer of 256 units with ReLU, on the flattened image.
std::unique_ptr<Sequential> mlp(std::int64_t classes = 10);

// Makes a model by its command-line name. An unknown name is an Error that lists the known ones.
std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes = 10);
// The initializer that the tutorials use for each of them: Xavier for LeNet, otherwise Normal(0.01).
Initializer model_initializer(std::string_view name);
std::vector<std::string> model_names();

struct ResNetOptions {
  // Each block has three convolutions (1x1, 3x3, and 1x1 with four times the channels) instead of two (3x3).
  bool bottleneck = false;
  std::array<int, 4> layers{2, 2, 2, 2};  // blocks at 64, 128, 256, and 512 channels
  std::int64_t num_classes = 1000;
  std::int64_t in_channels = 3;
};

// A residual net for large images (He et al. 2015), [N, in_channels, H, W] -> [N, num_classes]. H and W are arbitrary,
// usually 224. It loads torchvision's weight files: parameters are conv1, bn1, layer1 to layer4, fc, and
// layer2.0.downsample.0 is the convolution on a shortcut. Throws if an option is below 1.
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

// torchvision's own, with its names, shapes, and numbers of parameters.
//
//   auto net = torchvision::resnet18();
//   net->initialize(Kaiming{}, devices);
//   load_weights("resnet18.safetensors", *net);
namespace torchvision {
std::unique_ptr<ResNet> resnet18(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet34(std::int64_t num_classes = 1000);
std::unique_ptr<ResNet> resnet50(std::int64_t num_classes = 1000);
}  // namespace torchvision

}  // namespace lockstep
