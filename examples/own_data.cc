#include <fmt/core.h>
#include <lockstep/autograd/creation.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/optim/sgd.h>
#include <lockstep/parallel/batches.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/train/evaluate.h>

using namespace lockstep;

// Points of a square, labeled by whether they lie in a circle that covers half of it.
struct Circle : Dataset {
  std::uint64_t seed;
  explicit Circle(std::uint64_t number) : seed(number) {}
  std::int64_t size() const override { return 4096; }
  Example get(std::int64_t i) const override {
    RandomKey key = random_key(seed, {static_cast<std::uint64_t>(i)});
    double x = 2 * random_uniform(key, 0) - 1, y = 2 * random_uniform(key, 1) - 1;
    return {tensor({x, y}), tensor(x * x + y * y < 0.6366 ? 1 : 0)};
  }
};

struct Net : Module {
  Linear& hidden = make<Linear>("hidden", 2, 64);
  Linear& out = make<Linear>("out", 64, 2);
  Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
};

int main() {
  Net net;
  Sgd sgd(net.parameters(), {.lr = 0.5});
  DataLoader loader(Circle(1), {.batch_size = 128, .shuffle = true}), test_loader(Circle(2), {.batch_size = 128});
  for (int epoch = 1; epoch <= 10; ++epoch)
    for (auto [x, labels] : loader.on(net)) {    // where the model is
      cross_entropy(net(x), labels).backward();  // on all of its devices at once
      sgd.step();                                // updates every replica
    }
  fmt::print("test accuracy {:.3f} on {}\n", evaluate(net, test_loader).value(), str(net.devices()));
  fmt::print("weights {}\n", weights_sha256(net).substr(0, 12));  // on any number of devices
}
