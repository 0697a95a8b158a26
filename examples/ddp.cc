// Distributed data parallel: one process per device, each with its own part of the data; gradients are averaged over
// ranks while backward still runs, and rank 0 saves checkpoints.
//
//   ddp --nprocs 4                                     starts its ranks by itself
//   ddp --devices cuda:0,cuda:1                        one for each device
//   lockstep launch --nproc-per-node 4 -- ddp          or something else has started them
#include <fmt/core.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/data/map_dataset.h>
#include <lockstep/data/random_dataset.h>
#include <lockstep/launch/launch_environment.h>
#include <lockstep/launch/spawn.h>
#include <lockstep/nn/linear.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/sgd.h>
#include <lockstep/parallel/distributed_data_parallel.h>

#include "device_options.h"

using namespace lockstep;

struct Options : DeviceOptions {
  int total_epochs = 2;
  int save_step = 1;
  std::int64_t batch_size = 32;  // of a rank
  std::string snapshot = "checkpoint.safetensors";
};

// 2,048 examples of 20 random inputs and a random output.
MapDataset load_train_set() {
  auto split = [](const Example& row, RandomKey) { return Example{row[0].narrow(0, 0, 20), row[0].narrow(0, 20, 1)}; };
  const RandomDatasetOptions rows{.examples = 2048, .length = 21};
  return {RandomDataset(rows), split};
}

struct Trainer {
  DistributedDataParallel<Linear>& model;
  DataLoader& train_data;
  Optimizer& optimizer;
  const Options& options;
  int rank;

  void run_batch(const Tensor& source, const Tensor& targets) {
    mse_loss(model(source), targets).backward();
    optimizer.step();
  }

  void run_epoch(int epoch) {
    const auto [first, last] = model.rows_of(train_data.batch_examples(0));
    fmt::print("[rank {}] Epoch {} | Batchsize: {} | Steps: {}\n", rank, epoch, last - first, train_data.size());
    train_data.set_epoch(epoch);  // another order
    for (auto [source, targets] : train_data.on(model)) run_batch(source, targets);
  }

  // The inner model's names: no `module.` before them.
  void save_checkpoint(int epoch) {
    save_weights(options.snapshot, model.module());
    fmt::print("Epoch {} | Training checkpoint saved at {}\n", epoch, options.snapshot);
  }

  void train(int max_epochs) {
    for (int epoch = 0; epoch < max_epochs; ++epoch) {
      run_epoch(epoch);
      if (rank == 0 && epoch % options.save_step == 0) save_checkpoint(epoch);
      std::fflush(stdout);
    }
  }
};

// The program of each rank.
void run(const Options& options) {
  Job job({.devices = options.list});
  Linear model(20, 1);
  DistributedDataParallel ddp(model);
  Sgd optimizer(model.parameters(), {.lr = 1e-3});
  // The batches of all ranks together: each rank loads its rows of them.
  DataLoader train_data(load_train_set(), {.batch_size = options.batch_size * job.world_size(), .shuffle = true});
  Trainer{ddp, train_data, optimizer, options, job.rank()}.train(options.total_epochs);
  job.close();
}

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Distributed data parallel: one process per device"};
  app.add_option("--total-epochs", options.total_epochs, "Passes over the data")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--save-step", options.save_step, "Epochs between checkpoints")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Batch size per rank")
      ->check(CLI::Range(1, 2048))
      ->capture_default_str();
  app.add_option("--snapshot", options.snapshot, "File in which rank 0 saves the weights")->capture_default_str();
  options.add_to(app, "--nprocs,--num-devices", "Ranks to start, unless a launcher has started them");
  return run_example(app, argc, argv, [&] {
    if (read_launch_environment()) return run(options);
    const int nprocs = options.list.empty() ? options.num_devices : parse_device_list(options.list).count;
    spawn([&](int) { run(options); }, {.nprocs = nprocs, .join = true});
  });
}
