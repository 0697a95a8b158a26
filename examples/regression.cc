// Fits a curve: data of your own, a mean squared error, and a mean absolute error as metric. Trainer does the rest.
//
//   regression [FOLDER]   writes a log, a plot, and a timeline of the first two epochs to FOLDER
#include <fmt/core.h>
#include <lockstep/autograd/creation.h>
#include <lockstep/nn/initializers.h>
#include <lockstep/nn/linear.h>
#include <lockstep/nn/module.h>
#include <lockstep/optim/adam.h>
#include <lockstep/runtime/timeline.h>
#include <lockstep/train/plot.h>
#include <lockstep/train/trainer.h>

#include <filesystem>
#include <optional>

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
    return {tensor({x, y}), tensor({z})};
  }
};

struct Net : Module {
  Linear& hidden = make<Linear>("hidden", 2, 32);
  Linear& out = make<Linear>("out", 32, 1);
  Tensor forward(const Tensor& x) override { return out(tanh(hidden(x))); }
};

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "";
  Runtime runtime({.cpu_devices = 2});
  Net net;
  net.initialize(Xavier{});
  Adam adam(net.parameters(), {.lr = 0.01});
  Trainer trainer(net, adam, Saddle(1), Saddle(2),
                  {.batch_size = 64,
                   .epochs = 20,
                   .loss = [](const Tensor& z, const Tensor& target) { return mse_loss(z, target); },
                   .metrics = {metrics::mean_absolute_error()},
                   .log_file = folder.empty() ? folder : folder / "regression.jsonl"});
  std::optional<Animator> plot;
  std::optional<Timeline> timeline;
  if (!folder.empty()) {
    plot.emplace(folder / "regression.svg", AnimatorOptions{.title = "z = x * y",
                                                            .x = {.low = 1, .high = 20},
                                                            .panels = {{"train loss"}, {"mean absolute error"}}});
    timeline.emplace(runtime);
  }
  trainer.on_epoch = [&](const EpochReport& epoch) {
    const double error = metric_named(epoch.metrics, "mean_absolute_error").value;
    fmt::print("epoch {}, loss {:.4f}, mean absolute error {:.4f}\n", epoch.epoch, epoch.train_loss, error);
    if (plot) plot->add(static_cast<double>(epoch.epoch), {epoch.train_loss, error});
    if (timeline && epoch.epoch == 2) {
      timeline->write(folder / "regression.json");  // for Perfetto, ui.perfetto.dev
      timeline.reset();
    }
  };
  trainer.train();
}
