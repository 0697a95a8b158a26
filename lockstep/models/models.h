// The nets of the tutorials. Names of parameters equal those of the same nets in PyTorch.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/container.h"

namespace LOCKSTEP_API lockstep {

// ResNet-18 for small images (D2L 13.6): no max pool, 3x3 stem; [N, C, H, W] -> [N, classes].
std::unique_ptr<Sequential> resnet18(std::int64_t classes = 10);
// LeNet-5 with ReLU and max pools.
std::unique_ptr<Sequential> lenet(std::int64_t classes = 10);
// 256 hidden units, ReLU.
std::unique_ptr<Sequential> mlp(std::int64_t classes = 10);

// By the name that the command line uses; an unknown one is an Error that lists them.
std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes = 10);
// What the tutorials start each of them with: Normal(0.01), LeNet with Xavier.
Initializer model_initializer(std::string_view name);
std::vector<std::string> model_names();

}  // namespace lockstep
