// Fits a curve: data of your own, a mean squared error, and a mean absolute error as metric. Trainer does the rest.
#include <fmt/core.h>
#include <lockstep/nn/layers.h>
#include <lockstep/train/trainer.h>

using namespace lockstep;

// Points of z = x * y + noise.
struct Saddle : Dataset {
  std::uint64_t seed;
  explicit Saddle(std::uint64_t seed) : seed(seed) {}
  std::int64_t size() const override { return 2048; }
  Example get(std::int64_t i) const override {
    const RandomKey key = random_key(seed, {static_cast<std::uint64_t>(i)});
    const double x = 2 * random_uniform(key, 0) - 1, y = 2 * random_uniform(key, 1) - 1;
    const double z = x * y + 0.01 * random_normal(key, 2);
    return {Tensor::from(std::vector{static_cast<float>(x), static_cast<float>(y)}, {2}),
            Tensor::from(std::vector{static_cast<float>(z)}, {1})};
  }
};

struct Net : Module {
  Linear hidden{{.out_features = 32}}, out{{.out_features = 1}};
  Net() { add("hidden", hidden), add("out", out); }
  Tensor forward(const Tensor& x) override { return out(tanh(hidden(x))); }
};

int main() {
  Runtime runtime({.cpu_devices = 2});
  Net net;
  net.initialize(Xavier{}, runtime.devices());
  Adam adam(net.parameters(), {.lr = 0.01});
  Trainer trainer(net, adam, Saddle(1), Saddle(2),
                  {.devices = runtime.devices(),
                   .batch_size = 64,
                   .epochs = 20,
                   .loss = [](const Tensor& z, const Tensor& target) { return mse_loss(z, target); },
                   .metrics = {metrics::mean_absolute_error()}});
  trainer.on_epoch = [](const EpochReport& epoch) {
    fmt::print("epoch {}, loss {:.4f}, mean absolute error {:.4f}\n", epoch.epoch, epoch.train_loss,
               metric_named(epoch.metrics, "mean_absolute_error").value);
  };
  trainer.train();
}
