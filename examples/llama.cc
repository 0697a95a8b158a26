// A small Llama that learns to count in steps of three, on one device and on two.
#include "llama.h"

#include <fmt/core.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/optim/adam.h>
#include <lockstep/parallel/batches.h>
#include <lockstep/runtime/runtime.h>

using namespace lockstep;

// The losses of the same training on any number of devices.
std::vector<float> train(int devices) {
  Runtime runtime({.devices = devices});
  const Tensor starts = arange(24).reshape({24, 1}), steps = arange(17) * 3;
  const Tensor text = remainder(starts + steps, 11);  // [24, 17]
  DataLoader loader(TensorDataset({narrow(text, 1, 0, 16), narrow(text, 1, 1, 16)}), {.batch_size = 24});
  llama::Llama net({.vocab_size = 11, .dim = 16, .hidden_dim = 40, .n_layers = 2, .n_heads = 4, .n_kv_heads = 2});
  net.initialize(Xavier{});
  Adam adam(net.parameters(), {.lr = 0.02});
  std::vector<float> losses;
  for (int epoch = 0; epoch < 40; ++epoch) {
    for (auto [x, y] : loader.on(net, {.shards = 4})) {
      const Tensor loss = cross_entropy(flatten(net(x), 0, 1), flatten(y, 0, 1));
      loss.backward();
      adam.step();
      losses.push_back(loss.item());
    }
  }
  return losses;
}

int main() {
  const std::vector<float> one = train(1), two = train(2);
  fmt::print("loss {:.3f}, then {:.3f} on two devices; {} on one\n", two.front(), two.back(),
             one == two ? "the same" : "another");
  return one == two && two.back() < two.front() / 2 ? 0 : 1;
}
