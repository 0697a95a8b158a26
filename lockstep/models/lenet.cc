#include "lockstep/models/lenet.h"

#include <cstdint>
#include <memory>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/pooling.h"

namespace lockstep {

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

}  // namespace lockstep
