#include "lockstep/models/models.h"

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/residual.h"
#include "lockstep/nn/sequential.h"

namespace lockstep {
namespace {

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

std::unique_ptr<Sequential> lenet(std::int64_t classes) {
  auto net = std::make_unique<Sequential>();
  net->append<Conv2d>(ConvLayerOptions{.out_channels = 6, .kernel_size = 5, .padding = 2});
  net->append<ReLU>().append<MaxPool2d>();
  net->append<Conv2d>(ConvLayerOptions{.out_channels = 16, .kernel_size = 5}).append<ReLU>().append<MaxPool2d>();
  net->append<Flatten>().append<Linear>(LinearOptions{.out_features = 120}).append<ReLU>();
  net->append<Linear>(LinearOptions{.out_features = 84}).append<ReLU>();
  net->append<Linear>(LinearOptions{.out_features = classes});
  return net;
}

std::unique_ptr<Sequential> mlp(std::int64_t classes) {
  auto net = std::make_unique<Sequential>();
  net->append<Flatten>().append<Linear>(LinearOptions{.out_features = 256}).append<ReLU>();
  net->append<Linear>(LinearOptions{.out_features = classes});
  return net;
}

std::vector<std::string> model_names() { return {"resnet18", "lenet", "mlp"}; }

std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes) {
  check(classes >= 1, "model: {} classes, expected at least 1", classes);
  if (name == "resnet18") return resnet18(classes);
  if (name == "lenet") return lenet(classes);
  if (name == "mlp") return mlp(classes);
  fail("unknown model {}: expected resnet18, lenet, or mlp", name);
}

Initializer model_initializer(std::string_view name) {
  if (name == "lenet") return Xavier{};
  return Normal{0.01};
}

}  // namespace lockstep
