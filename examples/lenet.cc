// LeNet on Fashion-MNIST, the same lines as python/examples/lenet.py: both print the SHA-256 of the same weights, which
// are those of `lockstep train --model lenet`, on any number of devices.
//
//   LOCKSTEP_DEVICES=3 lenet [EPOCHS [EXAMPLES]]
#include <fmt/core.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/head_dataset.h>
#include <lockstep/models/lenet.h>
#include <lockstep/optim/sgd.h>
#include <lockstep/parallel/batches.h>

#include <exception>
#include <string>

using namespace lockstep;

int main(int argc, char** argv) try {
  const int epochs = argc > 1 ? std::stoi(argv[1]) : 3;
  const int examples = argc > 2 ? std::stoi(argv[2]) : 1024;
  auto net = lenet();
  net->initialize(Xavier{});
  Sgd optimizer(net->parameters(), {.lr = 0.1});
  DataLoader loader(HeadDataset(FashionMnist(load_fashion_mnist(MnistPart::train)), examples),
                    {.batch_size = 128, .shuffle = true});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto [x, labels] : loader.on(*net, {.shards = 8})) {
      cross_entropy((*net)(x), labels).backward();
      optimizer.step();
    }
  }
  fmt::print("{}\n", weights_sha256(*net));
} catch (const std::exception& error) {
  fmt::print(stderr, "lenet: {}\n", error.what());
  return 1;
}
