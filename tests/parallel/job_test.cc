#include "lockstep/parallel/job.h"

#include <gtest/gtest.h>

#include <thread>

#include "lockstep/autograd/functions.h"
#include "lockstep/base/warning.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/device/gpu.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

// Ranks in threads that meet as processes do; what each of them threw.
std::vector<std::string> run_jobs(int world, const std::function<void(Job&)>& body, const std::string& devices = "") {
  const TcpStoreServer server;
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server.port()});
        Job job({.group = {.backend = "gloo",
                           .rank = rank,
                           .world_size = world,
                           .store = store,
                           .timeout = std::chrono::seconds(5)},
                 .devices = devices});
        body(job);
        job.close();
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST(Job, TrainsAModelOnAllRanks) {
  std::vector<std::string> weights(2);
  expect_fine(run_jobs(2, [&](Job& job) {
    auto net = two_layers();
    net->initialize(Xavier{}, job.devices());
    DistributedDataParallel ddp(*net, job);
    Sgd sgd(net->parameters(), {.lr = 0.1});
    testing::Random random(1);
    const auto data =
        std::make_shared<TensorDataset>(std::vector<Tensor>{random.floats({10, 4}), random.floats({10, 2})});
    DataLoader loader(data, {.batch_size = 4});
    for (auto [x, y] : ddp.batches(loader)) {
      mse_loss(ddp(x), y).backward();
      sgd.step();
    }
    weights[static_cast<std::size_t>(job.rank())] = weights_sha256(*net);
  }));
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Job, AnOnlyRankTakesAllDevices) {
  Job job({.runtime = {.cpu_devices = 3}, .devices = "cpu:0,cpu:2"});
  ASSERT_EQ(job.devices().size(), 2u);
  EXPECT_EQ(job.devices()[1].name(), "cpu:2");
  job.close();
}

// Nothing reads the loss of a bad label, and other ranks do not know of it.
TEST(Job, WarnsOfItsLastFailure) {
  std::vector<std::string> warnings;
  const WarningHandler old = set_warning_handler([&](const Warning& w) { warnings.push_back(w.message); });
  for (const bool fails : {true, false}) {
    const Job job({.runtime = {.cpu_devices = 1}});
    const Tensor logits = full({1, 3}, 0, {.device = job.devices()[0]});
    cross_entropy(logits, tensor({fails ? 7 : 2}).to(job.devices()[0]));
  }
  set_warning_handler(old);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("cross_entropy"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("call Job::close() to get the error"), std::string::npos);
}

// A rank whose number was lost on the way would train alone.
TEST(Job, ItsListOfDevicesIsSaidOnce) {
  expect_fine(run_jobs(
      2,
      [](Job& job) {
        const std::string found = str(job.devices());
        check(found == fmt::format("[cpu:{}]", job.rank()), "rank {} has {}", job.rank(), found);
      },
      "cpu:0,cpu:1"));
  Job alone({.devices = "cpu:0,cpu:1"});
  EXPECT_EQ(str(alone.devices()), "[cpu:0, cpu:1]");
  // A list of kinds, and a runtime that says what it has.
  EXPECT_EQ(str(Job({.devices = "cpu"}).devices()), "[cpu:0]");
  EXPECT_EQ(str(Job({.runtime = {.cpu_devices = 2}, .devices = "cpu"}).devices()), "[cpu:0, cpu:1]");
  EXPECT_EQ(str(Job({.runtime = {.cpu_devices = 2}, .devices = "auto"}).devices()), "[cpu:0, cpu:1]");
  EXPECT_EQ(str(Job({.runtime = {.cpu_devices = 3}, .devices = "cpu:2"}).devices()), "[cpu:2]");
}

// As for the tool's --devices: each rank has its own.
TEST(Job, AKindOfDevicesIsEachRanksOwn) {
  expect_fine(run_jobs(
      2, [](Job& job) { check(str(job.devices()) == "[cpu:0]", "rank {}: {}", job.rank(), str(job.devices())); },
      "cpu"));
  if (find_gpus().gpus.empty()) {
    EXPECT_EQ(str(Job({.devices = "auto"}).devices()), "[cpu:0]");
    EXPECT_ERROR(Job({.devices = "cuda"}), "job: devices cuda: there is no GPU: ");
  } else {
    EXPECT_EQ(str(Job({.devices = "cuda"}).devices()), str(Job({.devices = "auto"}).devices()));
  }
  EXPECT_ERROR(Job({.devices = "gpu"}), "unknown device 'gpu' in 'gpu': expected cpu:0, cpu:1, ..., cuda:0, ...");
}

TEST(Job, ALauncherWithoutNumbersIsAnError) {
  for (const char* name : {"MASTER_ADDR", "LOCAL_RANK", "SLURM_PROCID", "PALS_RANKID"}) {
    EnvironmentVariable variable(name, "1");
    EXPECT_ERROR(Job(), "WORLD_SIZE");
  }
}

// Its weights are those of a program without ranks.
TEST(Job, AProcessThatNoLauncherStartedIsTheOnlyRank) {
  Job job({.runtime = {.cpu_devices = 2}});
  EXPECT_EQ(job.rank(), 0);
  EXPECT_EQ(job.world_size(), 1);
  const std::vector<Device>& devices = job.devices();
  const Tensor x = testing::Random(1).floats({6, 4}), y = testing::Random(2).floats({6, 2});
  const auto trained = [&](bool ranks) {
    const auto net = two_layers();
    net->initialize(Xavier{}, devices);
    Sgd sgd(net->parameters(), {.lr = 0.5});
    if (ranks) {
      DistributedDataParallel ddp(*net, job);
      const auto [inputs, targets] = ddp.split<2>(Example{x, y});
      mse_loss(ddp(inputs), targets).backward();
      sgd.step();
    } else {
      mse_loss((*net)(split_and_load(x, devices)), split_and_load(y, devices)).backward();
      sgd.step();
    }
    return weights_sha256(*net);
  };
  EXPECT_EQ(trained(true), trained(false));
  job.close();
}

TEST(Job, TensorsAreReducedOverRanks) {
  expect_fine(run_jobs(3, [](Job& job) {
    const Device device = job.devices()[0];
    const double mine = job.rank() + 1;
    EXPECT_EQ(job.all_reduce(full({2}, mine, {.device = device})).to_vector<float>(), (std::vector<float>{6, 6}));
    // Host memory, other types, other reductions, and in a row without a wait.
    const Tensor host = full({}, mine, {.dtype = DType::i64});
    const Tensor most = job.all_reduce(host, ReduceOp::max), least = job.all_reduce(host, ReduceOp::min);
    EXPECT_TRUE(most.device().is_host());
    EXPECT_EQ(most.item<std::int64_t>(), 3);
    EXPECT_EQ(least.item<std::int64_t>(), 1);
    EXPECT_EQ(host.item<std::int64_t>(), job.rank() + 1);
    EXPECT_ERROR(job.all_reduce(Tensor()), "all_reduce: undefined tensor");
    EXPECT_ERROR(job.all_reduce(zeros({1}, {.device = device}).set_requires_grad(true)), "detach() it");
  }));
}

TEST(Job, AnExceptionIsToldToTheOtherRanks) {
  const std::vector<std::string> errors = run_jobs(3, [](Job& job) {
    if (job.rank() == 1) fail("no more rows");
    job.communicator()->sum_on_host(1, "rows");
  });
  EXPECT_EQ(errors[1], "no more rows");
  for (std::size_t r : {0U, 2U}) {
    EXPECT_NE(errors[r].find("rank 1"), std::string::npos) << errors[r];
    EXPECT_NE(errors[r].find("an exception ended it"), std::string::npos) << errors[r];
  }
}

TEST(Job, ClosingWhileAnotherRankWaitsIsAnErrorOnBoth) {
  const std::vector<std::function<void(Job&)>> waits{
      [](Job& job) { job.communicator()->gather_on_host(1, "numbers"); },
      [](Job& job) { job.all_reduce(ones({1}, {.device = job.devices()[0]})).item(); },
      [](Job& job) { job.group()->barrier().wait(); },
      [](Job& job) { job.communicator()->make_group(); },
  };
  for (const auto& wait : waits) {
    const auto errors = run_jobs(2, [&](Job& job) { job.rank() == 0 ? wait(job) : job.close(); });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("closing the group"), std::string::npos) << error;
      EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
    }
  }
}

TEST(Job, ARankWithoutADeviceIsAnError) {
  const std::vector<std::string> errors = run_jobs(
      2, [](Job&) {}, "cpu:0");
  EXPECT_EQ(errors[1], "job: rank 1 has local rank 1, but the only devices listed are cpu:0");
}

}  // namespace
}  // namespace lockstep
