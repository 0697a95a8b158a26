// A rank of a small job that injects one fault.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <thread>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/train/trainer.h"
#include "tests/failure/faulty_group.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

struct Options {
  Fault fault;
  int culprit = 0;
  std::int64_t delay = 0;  // microseconds
  std::string save;
  // How the culprit differs: "model", "recipe", or "order".
  std::string disagree;
};

// Reaches "backward" while the host describes the pass.
struct Backward : Function {
  FaultInjector* fault = nullptr;
  Runtime* runtime = nullptr;

  Tensor forward(const Tensor& x, FaultInjector* injector, Runtime* of) {
    fault = injector, runtime = of;
    return x * 1.0;
  }
  Tensor backward(const Tensor& dy) {
    fault->reach("backward", [this] { runtime->synchronize(); });
    return dy;
  }
};

// Reaches "evaluation" for the example that settles its shapes, and then for each shard of each batch.
struct Net : Module {
  Linear hidden, out{{.out_features = 10}};
  FaultInjector& fault;
  Runtime& runtime;

  // The second layer gets its own bucket, because it exceeds the size of the first one.
  Net(std::int64_t width, FaultInjector& f, Runtime& r) : hidden({.out_features = width}), fault(f), runtime(r) {
    add("hidden", hidden);
    add("out", out);
  }
  Tensor forward(const Tensor& x) override {
    if (!training()) fault.reach("evaluation", [this] { runtime.synchronize(); });
    Tensor y = relu(hidden(x));
    if (training()) y = apply<Backward>(y, &fault, &runtime);
    return out(y);
  }
};

// Whether part of a checkpoint exists, beyond what the run leaves when it claims its folder at step 0.
bool has_checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name != ".lock" && name != ".tmp-step-00000000") return true;
  }
  return false;
}

// Strikes while a checkpoint is being written, as soon as part of it exists.
void watch_folder(const std::filesystem::path& folder, FaultInjector& fault) {
  std::thread([folder, &fault] {
    while (!has_checkpoint(folder)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    fault.reach("checkpoint");
  }).detach();
}

std::shared_ptr<const Dataset> random_examples(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  for (std::int64_t& label : labels) label = random.integer(0, 9);
  return std::make_shared<TensorDataset>(
      std::vector<Tensor>{random.floats({count, 300}), Tensor::from(labels, {count})});
}

void train(const Options& o, std::shared_ptr<ProcessGroup> group, FaultInjector& fault) {
  const auto differs = [&](const char* what) { return o.disagree == what && group->rank() == o.culprit; };
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  Net net(differs("model") ? 1025 : 1024, fault, runtime);
  net.initialize(Normal{0.01}, runtime.devices());
  Sgd optimizer(net.parameters(), {.lr = differs("recipe") ? 0.02 : 0.01});
  if (differs("order")) group->barrier().wait();
  TrainerOptions options{.devices = runtime.devices(),
                         .communicator = std::make_shared<Communicator>(runtime, group),
                         .split = {.shards = 4},
                         .batch_size = 16,
                         .epochs = 3,
                         .save_folder = o.save};
  Trainer trainer(net, optimizer, random_examples(64, 1), random_examples(32, 2), options);
  if (group->rank() == 0 && fault.waits_for("checkpoint") && !fault.strikes_in_place()) watch_folder(o.save, fault);
  trainer.train();
}

void run(const Options& o) {
  const auto launched = read_launch_environment();
  check(launched.has_value(), "expected a launcher");
  FaultInjector fault(launched->rank == o.culprit ? o.fault : Fault{});
  auto store = std::make_shared<TcpStore>(
      TcpStoreOptions{.host = launched->master_addr, .port = launched->master_port, .secret = read_secret()});
  auto group = make_faulty_group(init_process_group({.store = make_faulty_store(store, fault)}), fault);
  try {
    train(o, group, fault);
  } catch (const std::exception& error) {
    group->abort(error.what());
    throw;
  }
  destroy_process_group(group);
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  lockstep::testing::Options o;
  CLI::App app;
  app.add_option("--fault", o.fault.kind);
  app.add_option("--phase", o.fault.phase);
  app.add_option("--skip", o.fault.skip);
  app.add_option("--delay", o.delay);
  app.add_option("--culprit", o.culprit);
  app.add_option("--save", o.save);
  app.add_option("--disagree", o.disagree);
  CLI11_PARSE(app, argc, argv);
  o.fault.delay = std::chrono::microseconds(o.delay);
  try {
    lockstep::testing::run(o);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: %s\n", error.what());
    return 1;
  }
}
