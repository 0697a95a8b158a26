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
#include <lockstep/train/evaluate.h>
#include <lockstep/train/plot.h>
#include <lockstep/train/trainer.h>

#include <chrono>

#include "device_options.h"

using namespace lockstep;

namespace {

struct Options : DeviceOptions {
  std::string data;
  std::int64_t epochs = 10;
  std::int64_t limit_train = 60000;
  std::int64_t limit_test = 10000;
  std::int64_t batch_size = 0;
  double lr = 0;
  std::string plot = "multi_gpu_concise";
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
void show_initialization(Module& net, const std::vector<Device>& devices) {
  net.initialize(Normal{0.01}, devices);
  const Tensor images = rand({4, 1, 28, 28}, {.device = devices[0]});
  EvalGuard evaluation(net);
  for (const Tensor& y : net(split_and_load(images, devices)).shards()) {
    fmt::print("{}: {}\n", y.shape(), y.str());
  }

  const Parameter weight = net["0.weight"];
  try {
    weight.data(kHost);
  } catch (const Error& error) {
    fmt::print("{}\n", error.what());
  }
  for (Device device : devices) {
    fmt::print("{}\n", weight.data(device)[0].str());
    check(weight.data(device).to_vector<float>() == weight.data(devices[0]).to_vector<float>(),
          "the replicas on {} and {} differ", devices[0].name(), device.name());
  }
}

void train(Runtime& runtime, Module& net, const std::vector<Device>& devices, std::int64_t batch_size, double lr,
           const HeadDataset& train_data, const HeadDataset& test_data, const Options& o) {
  DataLoader train_loader(train_data, {.batch_size = batch_size, .shuffle = true});
  DataLoader test_loader(test_data, {.batch_size = batch_size});
  net.initialize(Normal{0.01}, devices, {.force_reinit = true});
  Sgd sgd(net.parameters(), {.lr = lr});

  std::vector<EpochReport> epochs;
  double seconds = 0;
  for (int epoch = 1; epoch <= o.epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Tensor> losses;  // read after the epoch, so that no step waits
    for (auto [x, labels] : train_loader.on(net)) {
      const Tensor loss = cross_entropy(net(x), labels);
      losses.push_back(loss.detach() * static_cast<double>(x.size(0)));
      loss.backward();
      sgd.step();
    }
    runtime.synchronize();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    seconds += time.count();

    const Accuracy accuracy = evaluate(net, test_loader);
    double loss = 0;
    for (const Tensor& of_batch : losses) loss += of_batch.item();
    epochs.push_back({.epoch = epoch,
                      .seconds = time.count(),
                      .train_loss = loss / static_cast<double>(train_data.size()),
                      .test = accuracy});
    write_training_plot(fmt::format("{}-{}.svg", o.plot, devices.size()), epochs,
                        {.title = "resnet18 on " + str(devices), .epochs = static_cast<int>(o.epochs)});
    fmt::print("epoch {}, time {:.1f} sec, test acc {:.2f}\n", epoch, time.count(), accuracy.value());
    std::fflush(stdout);
  }
  fmt::print("test acc: {:.2f}, {:.1f} sec/epoch on {}\n", epochs.back().test.value(),
             seconds / static_cast<double>(o.epochs), str(devices));
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app{"Trains a ResNet-18 on Fashion-MNIST, on one device and on two, or on those given."};
  Options options;
  add_options(app, options);
  if (const auto status = parse(app, argc, argv)) return *status;

  const auto train_data = load_images(options.data, MnistPart::train, options.limit_train);
  const auto test_data = load_images(options.data, MnistPart::test, options.limit_test);
  Runtime runtime(options.runtime());
  const std::vector<Device>& devices = runtime.devices();
  auto net = resnet18();
  show_initialization(*net, devices);

  auto run = [&](const std::vector<Device>& on) {
    auto n = static_cast<std::int64_t>(on.size());
    train(runtime, *net, on, options.batch_size > 0 ? options.batch_size : 256 * n,
          options.lr > 0 ? options.lr : 0.1 * static_cast<double>(n), train_data, test_data, options);
  };
  const bool given = app.count("--num-devices") + app.count("--devices") > 0;
  if (!given) run({devices[0]});
  run(devices);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "multi_gpu_concise: {}\n", error.what());
  return 1;
}
