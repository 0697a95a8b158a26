#include "lockstep/models/resnet.h"

#include <typeinfo>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/module_tree.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/residual.h"

namespace lockstep {
namespace {

constexpr std::int64_t kExpansion = 4;  // output channels of a bottleneck over those of its other convolutions

struct BlockOptions {
  std::int64_t in = 0, channels = 0, stride = 1;
  bool bottleneck = false;

  std::int64_t out() const { return bottleneck ? channels * kExpansion : channels; }
};

std::shared_ptr<Conv2d> conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return std::make_shared<Conv2d>(ConvLayerOptions{.in_channels = in,
                                                   .out_channels = out,
                                                   .kernel_size = kernel,
                                                   .stride = stride,
                                                   .padding = kernel / 2,
                                                   .bias = false});
}

// Returns whether it computes what relu() does, so that a batch norm can include it in one pass.
bool is_relu(const Module& module) { return typeid(module) == typeid(ReLU) && !ModuleTree::has_call(module); }

// The first 3x3 convolution has the stride, as in torchvision.
class Block : public Module {
 public:
  explicit Block(const BlockOptions& o) {
    if (o.bottleneck) {
      append(conv(o.in, o.channels, 1), o.channels);
      append(conv(o.channels, o.channels, 3, o.stride), o.channels);
      append(conv(o.channels, o.out(), 1), o.out());
    } else {
      append(conv(o.in, o.channels, 3, o.stride), o.channels);
      append(conv(o.channels, o.channels, 3), o.channels);
    }
    relu_ = make_slot<ReLU>("relu");
    if (o.stride == 1 && o.in == o.out()) return;
    downsample_ = std::make_shared<Sequential>();
    downsample_->append(conv(o.in, o.out(), 1, o.stride)).append<BatchNorm2d>(BatchNorm2dOptions{.channels = o.out()});
    add("downsample", downsample_);
  }

  Tensor forward(const Tensor& x) override {
    const Tensor shortcut = downsample_ ? (*downsample_)(x) : x;
    const bool fuses = is_relu(*relu_);
    Tensor y = x;
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      const bool last = i + 1 == convs_.size();
      y = norms_[i]->forward_fused((*convs_[i])(y), last ? shortcut : Tensor(), fuses);
      if (!fuses) y = relu_(y);
    }
    return y;
  }

 private:
  void append(std::shared_ptr<Conv2d> conv, std::int64_t channels) {
    convs_.push_back(std::move(conv));
    norms_.push_back(std::make_shared<BatchNorm2d>(BatchNorm2dOptions{.channels = channels}));
    add(fmt::format("conv{}", convs_.size()), convs_.back());
    add(fmt::format("bn{}", convs_.size()), norms_.back());
  }

  std::vector<std::shared_ptr<Conv2d>> convs_;
  std::vector<std::shared_ptr<BatchNorm2d>> norms_;
  ModuleSlot relu_;
  std::shared_ptr<Sequential> downsample_;
};

std::shared_ptr<Sequential> resnet_group(std::int64_t channels, int blocks, bool first) {
  auto group = std::make_shared<Sequential>();
  for (int i = 0; i < blocks; ++i) {
    bool halves = i == 0 && !first;
    group->append<Residual>(ResidualOptions{.channels = channels, .stride = halves ? 2 : 1, .project = halves});
  }
  return group;
}

}  // namespace

std::unique_ptr<Sequential> resnet18(std::int64_t classes) {
  auto net = std::make_unique<Sequential>();
  net->append<Conv2d>(ConvLayerOptions{.out_channels = 64, .kernel_size = 3, .padding = 1});
  net->append<BatchNorm2d>().append<ReLU>();
  net->append("resnet_block1", resnet_group(64, 2, true));
  net->append("resnet_block2", resnet_group(128, 2, false));
  net->append("resnet_block3", resnet_group(256, 2, false));
  net->append("resnet_block4", resnet_group(512, 2, false));
  net->append("global_avg_pool", std::make_shared<GlobalAvgPool2d>());
  auto head = std::make_shared<Sequential>();
  head->append<Flatten>().append<Linear>(LinearOptions{.out_features = classes});
  net->append("fc", head);
  return net;
}

ResNet::ResNet(const ResNetOptions& options)
    : conv1_({.in_channels = options.in_channels,
              .out_channels = 64,
              .kernel_size = 7,
              .stride = 2,
              .padding = 3,
              .bias = false}),
      bn1_(64) {
  check(options.in_channels > 0, "resnet: {} input channels, expected at least 1", options.in_channels);
  add("conv1", conv1_);
  add("bn1", bn1_);
  relu_ = make_slot<ReLU>("relu");
  maxpool_ = make_slot<MaxPool2d>("maxpool", Pool2dOptions{.kernel_size = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    check(options.layers[i] > 0, "resnet: {} blocks in layer{}, expected at least 1", options.layers[i], i + 1);
    layers_[i] = layer(options.layers[i], std::int64_t{64} << i, i == 0 ? 1 : 2, options.bottleneck);
    add(fmt::format("layer{}", i + 1), layers_[i]);
  }
  avgpool_ = make_slot<AdaptiveAvgPool2d>("avgpool", 1);
  fc_ = make_slot<Linear>("fc", options.bottleneck ? 512 * kExpansion : 512, options.num_classes);
}

std::shared_ptr<Sequential> ResNet::layer(int blocks, std::int64_t channels, std::int64_t stride, bool bottleneck) {
  auto all = std::make_shared<Sequential>();
  for (int i = 0; i < blocks; ++i) {
    const BlockOptions options{channels_, channels, i == 0 ? stride : 1, bottleneck};
    all->append<Block>(options);
    channels_ = options.out();
  }
  return all;
}

Tensor ResNet::forward(const Tensor& x) {
  const bool fuses = is_relu(*relu_);
  Tensor y = bn1_.forward_fused(conv1_(x), {}, fuses);
  if (!fuses) y = relu_(y);
  y = maxpool_(y);
  for (const auto& layer : layers_) y = (*layer)(y);
  return fc_(flatten(avgpool_(y), 1));
}

namespace torchvision {

std::unique_ptr<ResNet> resnet18(std::int64_t num_classes) {
  return std::make_unique<ResNet>(ResNetOptions{.num_classes = num_classes});
}

std::unique_ptr<ResNet> resnet34(std::int64_t num_classes) {
  return std::make_unique<ResNet>(ResNetOptions{.layers = {3, 4, 6, 3}, .num_classes = num_classes});
}

std::unique_ptr<ResNet> resnet50(std::int64_t num_classes) {
  return std::make_unique<ResNet>(
      ResNetOptions{.bottleneck = true, .layers = {3, 4, 6, 3}, .num_classes = num_classes});
}

}  // namespace torchvision
}  // namespace lockstep
