// torchvision's residual nets: names, shapes, and results are those of tests/parity/resnet.json, which
// tests/parity/resnet_reference.py wrote.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/autograd/backward.h"
#include "lockstep/models/resnet.h"
#include "lockstep/nn/state_dict.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"
#include "tests/models/pseudo_random.h"

namespace lockstep::testing {
namespace {

using Doubles = std::vector<double>;

nlohmann::json of_torchvision() {
  std::ifstream file(LOCKSTEP_RESNET_FILE);
  return nlohmann::json::parse(file);
}

using Entries = std::map<std::string, Shape>;

Entries entries_of(const Module& net) {
  Entries found;
  for (const auto& [name, parameter] : net.named_parameters()) found[name] = parameter.shape();
  for (const auto& [name, buffer] : net.named_buffers()) found[name] = buffer.shape();
  return found;
}

TEST(ResnetParity, NamesAndShapesAreTorchvisions) {
  const nlohmann::json all = of_torchvision();
  for (const auto& [name, make] : {std::pair{"resnet18", &torchvision::resnet18},
                                   {"resnet34", &torchvision::resnet34},
                                   {"resnet50", &torchvision::resnet50}}) {
    SCOPED_TRACE(name);
    const auto net = make(1000);
    Entries theirs;
    for (const auto& [key, shape] : all.at("state").at(name).items()) {
      theirs[key] = Shape(shape.get<std::vector<std::int64_t>>());
    }
    EXPECT_EQ(entries_of(*net), theirs);
    EXPECT_EQ(net->parameter_count(), all.at("parameters").at(name));
  }
  EXPECT_EQ(all.at("state").at("resnet18").size(), 122U);
  EXPECT_EQ(all.at("state").at("resnet50").size(), 320U);
}

// In [-1, 1), as in the script.
Doubles numbers(const std::string& name, const Shape& shape) {
  Doubles all;
  for (std::int64_t i = 1; i <= shape.numel(); ++i) {
    all.push_back(static_cast<double>(mixed(fnv1a(name), static_cast<std::uint64_t>(i)) >> 7 & 0xffff) / 32768 - 1);
  }
  return all;
}

Tensor value(const std::string& name, const Shape& shape) {
  const bool small = name.ends_with("bias") || name.ends_with("running_mean");
  double scale = 1;
  if (shape.dim() > 1) {
    const double fan_in = static_cast<double>(shape.numel() / shape[0]);
    while (scale * scale * fan_in > 6) scale /= 2;
  }
  Doubles all = numbers(name, shape);
  for (double& u : all) u = shape.dim() > 1 ? u * scale : small ? u / 8 : 1 + u / 2;
  return Tensor::from(all, shape, {.dtype = DType::f32});
}

void expect_some(const Tensor& found, const nlohmann::json& theirs) {
  const Doubles all = values(found);
  Doubles some;
  double squares = 0;
  const std::size_t step = theirs.at("step");
  for (std::size_t i = 0; i < all.size(); ++i) {
    squares += all[i] * all[i];
    if (i % step == 0) some.push_back(all[i]);
  }
  EXPECT_NEAR(std::sqrt(squares) / theirs.at("norm").get<double>(), 1, 1e-5);
  EXPECT_LT(distance(some, theirs.at("values")), 2e-5);
}

TEST(ResnetParity, Resnet18ComputesWhatTorchvisionsDoes) {
  Runtime runtime({.cores_per_device = 1, .threads_per_shard = 1});
  const Device device = runtime.devices()[0];
  const auto net = torchvision::resnet18();
  net->initialize(Constant{0}, runtime.devices());
  StateDict state;
  for (const auto& [name, shape] : entries_of(*net)) {
    const bool count = name.ends_with("num_batches_tracked");
    state.emplace_back(name, count ? Tensor::from(std::vector<std::int64_t>{0}, shape) : value(name, shape));
  }
  load_state_dict(*net, state);
  net->eval();
  const nlohmann::json theirs = of_torchvision().at("results").at("resnet18");
  const Tensor image = as_leaf(make_tensor(numbers("image", {1, 3, 40, 40}), {1, 3, 40, 40}, device));
  const Tensor logits = (*net)(image);
  EXPECT_LT(distance(values(logits), theirs.at("logits")), 1e-5);
  Doubles weights;
  for (std::int64_t i = 0; i < logits.numel(); ++i) weights.push_back(static_cast<double>(i * 7 % 11 - 5) / 5);
  const Tensor seed = make_tensor(weights, logits.shape(), device);
  backward({&logits, 1}, {&seed, 1});
  expect_some(image.grad(), theirs.at("image"));
  EXPECT_EQ(theirs.at("gradients").size(), 9U);
  for (const auto& [name, gradient] : theirs.at("gradients").items()) {
    SCOPED_TRACE(name);
    expect_some(net->parameter(name).gradient(), gradient);
  }
}

}  // namespace
}  // namespace lockstep::testing
