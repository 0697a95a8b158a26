// A ResNet-18 with weights of torchvision gets a new last layer, which learns faster than the others.
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

void programs::fine_tuning(const std::filesystem::path& folder) {
  const std::filesystem::path weights = folder / "resnet18.safetensors";
  {
    auto original = torchvision::resnet18();
    original->devices();  // places it
    save_weights(weights, *original);
  }
  const TensorDataset flowers({randn({12, 3, 32, 32}, {.seed = 1}), tensor({0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1})});
  // program begins
  auto net = torchvision::resnet18();
  load_weights(weights, *net);
  std::vector<Parameter> body = net->parameters();
  std::erase_if(body, [](const Parameter& p) { return p.name().starts_with("fc."); });
  Linear& head = net->replace("fc", Linear(512, 5));
  Sgd sgd({{.parameters = body, .lr = 1e-4}, {.parameters = head.parameters()}}, {.lr = 1e-2, .momentum = 0.9});
  Trainer trainer(*net, sgd, flowers, nullptr, {.batch_size = 6, .epochs = 1});
  trainer.train();
  save_weights(folder / "flowers.safetensors", *net);
  // program ends
  auto again = torchvision::resnet18(5);
  load_weights(folder / "flowers.safetensors", *again);
  check(weights_sha256(*again) == weights_sha256(*net), "the saved weights are others");
}
