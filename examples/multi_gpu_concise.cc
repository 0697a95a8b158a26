// "Concise Implementation for Multiple GPUs" of Dive into Deep Learning: one ResNet-18 on several devices at
// once, with the training loop written out. Without options it follows the section: first one device, then two.
//
//   multi_gpu_concise --num-devices 2 --epochs 1 --limit-train 2048 --limit-test 512
#include <fmt/core.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/head_dataset.h>
#include <lockstep/models/resnet.h>
#include <lockstep/optim/sgd.h>
#include <lockstep/parallel/batches.h>
#include <lockstep/parallel/split.h>
#include <lockstep/runtime/default_runtime.h>
#include <lockstep/train/evaluate.h>
#include <lockstep/train/plot.h>

#include <chrono>

#include "device_options.h"

using namespace lockstep;

namespace {

struct Options : DeviceOptions {
  std::string data, plot = "multi_gpu_concise";
  std::int64_t epochs = 10, limit_train = 60000, limit_test = 10000, batch_size = 0;
  double lr = 0;
};

void add_options(CLI::App& app, Options& o) {
  auto count = CLI::Range(std::int64_t{1}, std::int64_t{1} << 24);
  o.add_to(app);
  app.add_option("--data", o.data, "Folder with the four files of Fashion-MNIST");
  app.add_option("--epochs", o.epochs, "Passes over the data")->check(count)->capture_default_str();
  app.add_option("--limit-train", o.limit_train, "Use the first N training images only")->check(count);
  app.add_option("--limit-test", o.limit_test, "Use the first N test images only")->check(count);
  app.add_option("--batch-size", o.batch_size, "Over all devices [256 each]")->check(count);
  app.add_option("--lr", o.lr, "Learning rate [0.1 a device]")->check(CLI::PositiveNumber);
  app.add_option("--plot", o.plot, "Draw FILE-<devices>.svg as training goes on")->capture_default_str();
}

HeadDataset load_images(const std::string& folder, MnistPart part, std::int64_t limit) {
  return {FashionMnist(load_fashion_mnist(part, folder)), limit};
}

// The first forward pass creates the parameters; all replicas start equal.
void show_initialization(Module& net) {
  net.initialize(Normal{0.01});
  const Tensor images = rand({4, 1, 28, 28});
  EvalGuard evaluation(net);
  for (const Tensor& y : net(split_and_load(images, devices())).shards()) fmt::print("{}: {}\n", y.shape(), y.str());

  const Parameter weight = net["0.weight"];
  try {
    weight.data(kHost);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
  for (Device device : devices()) fmt::print("{}\n", weight.data(device)[0].str());
}

void train(Module& net, const std::vector<Device>& devices, const Options& o) {
  const auto n = static_cast<std::int64_t>(devices.size());
  const std::int64_t batch_size = o.batch_size > 0 ? o.batch_size : 256 * n;
  DataLoader train_loader(load_images(o.data, MnistPart::train, o.limit_train),
                          {.batch_size = batch_size, .shuffle = true});
  DataLoader test_loader(load_images(o.data, MnistPart::test, o.limit_test), {.batch_size = batch_size});
  net.initialize(Normal{0.01}, devices, {.force_reinit = true});
  Sgd sgd(net.parameters(), {.lr = o.lr > 0 ? o.lr : 0.1 * static_cast<double>(n)});
  const auto epochs = static_cast<double>(o.epochs);
  Animator plot(
      fmt::format("{}-{}.svg", o.plot, n),
      {.title = "resnet18 on " + str(devices), .x = {.low = 1, .high = epochs}, .panels = {{"test accuracy"}}});

  double seconds = 0, accuracy = 0;
  for (int epoch = 1; epoch <= o.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    for (auto [x, labels] : train_loader.on(net)) {
      cross_entropy(net(x), labels).backward();
      sgd.step();
    }
    synchronize();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    seconds += time.count();
    accuracy = evaluate(net, test_loader).value();
    plot.add(epoch, {accuracy});
    fmt::print("epoch {}, time {:.1f} sec, test acc {:.2f}\n", epoch, time.count(), accuracy);
    std::fflush(stdout);
  }
  fmt::print("test acc: {:.2f}, {:.1f} sec/epoch on {}\n", accuracy, seconds / epochs, str(devices));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a ResNet-18 on Fashion-MNIST, on one device and on two, or on those given."};
  Options options;
  add_options(app, options);
  return run_example(app, argc, argv, [&] {
    Runtime runtime(options.runtime());
    auto net = resnet18();
    show_initialization(*net);
    const bool given = app.count("--num-devices") + app.count("--devices") > 0;
    if (!given) train(*net, {devices()[0]}, options);
    train(*net, devices(), options);
  });
}
