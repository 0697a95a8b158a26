// Three layers of a user's own in a net that is trained on two devices.
#include "own_layers.h"

#include <fmt/core.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/optim/adam.h>
#include <lockstep/parallel/batches.h>
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

// The losses of the same training on any number of devices.
std::vector<float> train(int devices) {
  Runtime runtime({.devices = devices});
  const Tensor images = rand({24, 8, 4, 4}, {.seed = 1});
  DataLoader loader(TensorDataset({images, select(flatten(images, 2), 2, -1)}), {.batch_size = 24});
  Net net;
  net.initialize(Xavier{});
  Adam adam(net.parameters(), {.lr = 0.02});
  std::vector<float> losses;
  for (int epoch = 0; epoch < 60; ++epoch) {
    for (auto [x, y] : loader.on(net, {.shards = 4})) {
      const Tensor loss = mse_loss(net(x), y);
      loss.backward();
      adam.step();
      losses.push_back(loss.item());
    }
  }
  return losses;
}

int main() {
  const std::vector<float> one = train(1), two = train(2);
  for (const auto& [name, parameter] : Net().named_parameters()) fmt::print("{} {}\n", name, parameter.shape());
  fmt::print("loss {:.3f}, then {:.3f} on two devices; {} on one\n", two.front(), two.back(),
             one == two ? "the same" : "another");
  return one == two && two.back() < two.front() / 2 ? 0 : 1;
}
