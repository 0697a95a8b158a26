// Trains a small net on random images through the installed library, on one device and on two: the same
// losses to the last bit.
#include <fmt/core.h>
#include <lockstep/lockstep.h>

using namespace lockstep;

namespace {

std::vector<double> train(int devices_wanted) {
  Runtime runtime({.cpu_devices = devices_wanted, .threads_per_shard = 1});
  const std::vector<Device>& devices = runtime.devices();
  auto net = mlp();
  net->initialize(Normal{0.01}, devices);
  Sgd sgd(net->parameters(), {.lr = 0.5});

  constexpr std::int64_t kImages = 60;
  std::vector<std::int64_t> classes(kImages);
  for (std::int64_t i = 0; i < kImages; ++i) classes[static_cast<std::size_t>(i)] = i % 10;
  const Tensor images = rand({kImages, 1, 28, 28}, {.seed = 0}), labels = Tensor::from(classes, {kImages});

  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    Tensor x = split_and_load(images, devices, {.shards = 2});
    Tensor loss = cross_entropy((*net)(x), split_and_load(labels, devices, {.shards = 2}));
    loss.backward();
    sgd.step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

}  // namespace

int main() {
  const std::vector<double> one = train(1), two = train(2);
  check(one == two, "the losses on one device and on two differ");
  check(two.back() < two.front(), "the loss went from {} to {}", two.front(), two.back());
  // Overloads of all headers together.
  Runtime runtime;
  const std::vector<Tensor> rows(3, zeros({2}, {.device = runtime.devices()[0]}));
  check(stack(rows).shape() == Shape{3, 2}, "stack: {}", stack(rows));
  fmt::print("loss {:.4f} after {} steps, {:.4f} before\n", two.back(), two.size(), two.front());
}
