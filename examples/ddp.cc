// Distributed data parallel: one process per device, each with its own part of the data; gradients are averaged over
// ranks while backward still runs, and rank 0 saves checkpoints.
//
//   ddp --nprocs 4                                     starts its ranks by itself
//   ddp --devices cuda:0,cuda:1                        one for each device
//   lockstep launch --nproc-per-node 4 -- ddp          or something else has started them
#include <fmt/core.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/comm/launch_environment.h>
#include <lockstep/comm/spawn.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/nn/linear.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/parallel/distributed_data_parallel.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "device_options.h"

using namespace lockstep;

struct JobOptions : DeviceOptions {
  int total_epochs = 2;
  int save_step = 1;
  std::int64_t batch_size = 32;  // of a rank
  std::string snapshot = "checkpoint.safetensors";
  std::string device;  // of this rank, as it is printed
};

// 2,048 random examples of a linear function's inputs and outputs.
std::shared_ptr<Dataset> load_train_set() {
  std::vector<float> x, y;
  RandomKey key = random_key(0, {hash_name("train set")});
  for (std::uint64_t i = 0; i < 2048 * 20; ++i) x.push_back(static_cast<float>(random_uniform(key, i)));
  for (std::uint64_t i = 0; i < 2048; ++i) y.push_back(static_cast<float>(random_uniform(key, 2048 * 20 + i)));
  return std::make_shared<TensorDataset>(std::vector{Tensor::from(x, {2048, 20}), Tensor::from(y, {2048, 1})});
}

class Trainer {
 public:
  Trainer(DistributedDataParallel& model, Optimizer& optimizer, DataLoader& loader, JobOptions options)
      : model_(model), optimizer_(optimizer), loader_(loader), options_(std::move(options)),
        rank_(model.communicator().rank()) {}

  void train(int max_epochs) {
    for (int epoch = 0; epoch < max_epochs; ++epoch) {
      run_epoch(epoch);
      if (rank_ == 0 && epoch % options_.save_step == 0) save_checkpoint(epoch);
    }
  }

 private:
  void run_batch(const Tensor& source, const Tensor& targets) {
    mse_loss(model_(source), targets).backward();
    optimizer_.step();
  }

  void run_epoch(int epoch) {
    loader_.set_epoch(epoch);  // another order
    const auto [first, last] = model_.rows_of(loader_.batch_examples(0));
    fmt::print("[{}] Epoch {} | Batchsize: {} | Steps: {}\n", options_.device, epoch, last - first, loader_.size());
    std::fflush(stdout);
    for (auto [source, targets] : model_.batches(loader_)) run_batch(source, targets);
  }

  // The inner model's names: no `module.` before them.
  void save_checkpoint(int epoch) {
    save_weights(options_.snapshot, model_.module());
    fmt::print("Epoch {} | Training checkpoint saved at {}\n", epoch, options_.snapshot);
    std::fflush(stdout);
  }

  DistributedDataParallel& model_;
  Optimizer& optimizer_;
  DataLoader& loader_;
  JobOptions options_;
  int rank_;
};

// Of the listed devices the one of this rank.
Device listed_device(const Runtime& runtime, const std::string& list) {
  const std::vector<Device> all = runtime.devices(list);
  const LaunchEnvironment job = *read_launch_environment();
  const int rank = job.local_rank.value_or(job.rank);
  check(rank < std::ssize(all), "--devices {}: rank {} has none", list, rank);
  return all[static_cast<std::size_t>(rank)];
}

// What each rank does.
void run(JobOptions options) {
  std::shared_ptr<ProcessGroup> group = init_process_group();
  {
    Runtime runtime(options.list.empty() ? RuntimeOptions{.cpu_devices = 1} : options.runtime());
    const Device device = options.list.empty() ? runtime.devices()[0] : listed_device(runtime, options.list);
    // Each process has its own cpu:0.
    options.device = options.list.empty() ? fmt::format("cpu:{}", group->rank()) : device.name();
    Linear model({.in_features = 20, .out_features = 1});
    model.initialize(Uniform(0.2), {device});
    auto communicator = std::make_shared<Communicator>(runtime, group, std::vector{device});
    DistributedDataParallel ddp(model, {device}, communicator);
    Sgd optimizer(model.parameters(), {.lr = 1e-3});
    std::shared_ptr<Dataset> data = load_train_set();
    // The batches of all ranks together: each rank loads its rows of them.
    DataLoader loader(data, {.batch_size = options.batch_size * group->size(), .shuffle = true});
    try {
      Trainer(ddp, optimizer, loader, options).train(options.total_epochs);
      runtime.synchronize();
    } catch (const std::exception& error) {
      communicator->abort(error.what());  // the others wait for this rank
      throw;
    }
  }
  destroy_process_group(group);
}

int main(int argc, char** argv) {
  JobOptions options;
  CLI::App app{"Distributed data parallel: one process per device"};
  app.add_option("--total-epochs", options.total_epochs)->check(CLI::Range(0, 1 << 20))->capture_default_str();
  app.add_option("--save-step", options.save_step, "Epochs between checkpoints")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Of each rank")
      ->check(CLI::Range(1, 2048))
      ->capture_default_str();
  app.add_option("--snapshot", options.snapshot, "Where rank 0 saves")->capture_default_str();
  options.add_to(app, "--nprocs,--num-devices", "Ranks to start, where nobody else has started any");
  if (const auto status = parse(app, argc, argv)) return *status;
  try {
    if (read_launch_environment()) {
      run(options);
    } else {
      const int nprocs = options.list.empty() ? options.num_devices : parse_device_list(options.list).count;
      spawn([&](int) { run(options); }, {.nprocs = nprocs, .join = true});
    }
  } catch (const Error& error) {
    fmt::print(stderr, "ddp: {}\n", error.what());
    return 1;
  }
}
