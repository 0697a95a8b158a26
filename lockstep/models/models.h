// Models for small images, by their names.
//
//   auto net = make_model("lenet");
//   net->initialize(model_initializer("lenet"), devices);
//   Tensor logits = (*net)(images);  // [N, 1, 28, 28] -> [N, 10]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/nn/initializers.h"
#include "lockstep/nn/sequential.h"

namespace LOCKSTEP_API lockstep {

// Makes a model by its command-line name. An unknown name is an Error that lists the known ones.
std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes = 10);
// The initializer that the tutorials use for a model: Xavier for LeNet, otherwise Normal(0.01).
Initializer model_initializer(std::string_view name);
std::vector<std::string> model_names();

}  // namespace lockstep
