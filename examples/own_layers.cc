// Three layers of a user's own in a net that is trained on two devices.
#include "own_layers.h"

#include <fmt/core.h>
#include <lockstep/optim/adam.h>
#include <lockstep/parallel/split.h>
#include <lockstep/runtime/runtime.h>

using namespace lockstep;
using namespace own_layers;

// [N, 8, 4, 4] -> [N, 8]
struct Net : Module {
  SqueezeExcite& squeeze = make<SqueezeExcite>("squeeze", 8, 2);
  Highway& highway = make<Highway>("highway", 8);
  SwiGLU& feed_forward = make<SwiGLU>("feed_forward", 8, 16);
  Tensor forward(const Tensor& x) override { return feed_forward(highway(mean(squeeze(x), {2, 3}))); }
};

// The losses of the same training on any devices.
std::vector<float> train(const std::vector<Device>& devices) {
  const Tensor x = rand({24, 8, 4, 4}, {.device = devices[0], .seed = 1}), y = select(flatten(x, 2), 2, -1);
  Net net;
  net.initialize(Xavier{}, devices);
  Adam adam(net.parameters(), {.lr = 0.02});
  std::vector<float> losses;
  for (int step = 0; step < 60; ++step) {
    const Tensor inputs = split_and_load(x, devices, {.shards = 4});
    const Tensor targets = split_and_load(y, devices, {.shards = 4});
    const Tensor loss = mse_loss(net(inputs), targets);
    loss.backward();
    adam.step();
    losses.push_back(loss.item());
  }
  return losses;
}

int main() {
  Runtime runtime({.devices = 2});
  const std::vector<Device>& devices = runtime.devices();
  const std::vector<float> one = train({devices[0]}), two = train(devices);
  for (const auto& [name, parameter] : Net().named_parameters()) fmt::print("{} {}\n", name, parameter.shape());
  fmt::print("loss {:.3f}, then {:.3f} on {}; {} on one device\n", two.front(), two.back(), str(devices),
             one == two ? "the same" : "another");
  return one == two && two.back() < two.front() / 2 ? 0 : 1;
}
