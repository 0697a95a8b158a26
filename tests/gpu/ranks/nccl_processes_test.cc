// Ranks are processes that train on their own GPUs. One of them is killed or stopped in the middle of a sum.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/device/gpu.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/models/mlp.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/expect_error.h"
#include "tests/gpu/ranks/hooked_sums.h"
#include "tests/logical_tensors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3, kVictim = 1;

// The ranks' results for the test, in shared memory.
struct Shared {
  std::atomic<int> pids[kRanks];
  std::atomic<int> finished;
  char texts[kRanks][500];
  double seconds[kRanks];  // from the signal to the error
  std::atomic<double> signaled;

  void say(int rank, const std::string& text) { texts[rank][text.copy(texts[rank], sizeof texts[rank] - 1)] = 0; }
};

class NcclProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    // Ask in a separate process, because this one must stay without threads.
    int enough = 0;
    spawn([&](int) { shared_->finished = static_cast<int>(find_gpus().gpus.size()); });
    enough = shared_->finished.exchange(0);
    if (enough < kRanks) GTEST_SKIP() << "fewer than " << kRanks << " GPUs";
  }
  ~NcclProcesses() override { ::munmap(shared_, sizeof(Shared)); }

  Shared* const shared_ =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
};

std::string train(int rank, const std::string& backend) {
  auto group = init_process_group({.backend = backend});
  std::string text;
  {
    Runtime runtime({.threads_per_shard = 1, .cuda = {rank}});
    auto net = mlp();
    net->initialize(Xavier{}, runtime.devices());
    settle_shapes(*net, Tensor::host({1, 1, 28, 28}), runtime.devices()[0]);
    auto communicator = std::make_shared<Communicator>(runtime, group);
    DistributedDataParallel ddp(*net, runtime.devices(), communicator,
                                {.split = {.shards = 5}, .buckets = {.bytes = 20000}});
    Sgd sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
    testing::Random random(1);
    for (int step = 0; step < 3; ++step) {
      const Tensor x = random.floats({10, 1, 28, 28});
      const Tensor y = Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, {10});
      auto [first, last] = ddp.rows_of(10);
      auto parts = ddp.split(std::vector{x.narrow(0, first, last - first), y.narrow(0, first, last - first)}, 10);
      cross_entropy(ddp(parts[0]), parts[1]).backward();
      sgd.step();
    }
    text = fmt::format("{} {}", communicator->backend_name(), weights_sha256(*net));
  }
  destroy_process_group(group);
  return text;
}

TEST_F(NcclProcesses, TrainingHasTheBitsOfTheHostsSums) {
  std::string sums[2][kRanks];
  const char* backends[] = {"nccl", "host"};
  for (int b = 0; b < 2; ++b) {
    spawn([&](int rank) { shared_->say(rank, train(rank, backends[b])); }, {.nprocs = kRanks});
    for (int r = 0; r < kRanks; ++r) sums[b][r] = shared_->texts[r];
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_TRUE(sums[b][r].starts_with(backends[b])) << sums[b][r];
      EXPECT_EQ(sums[b][r], sums[b][0]);
    }
  }
  EXPECT_EQ(sums[0][0].substr(5), sums[1][0].substr(5));
}

TEST_F(NcclProcesses, WhatCannotBeIsAnError) {
  EXPECT_ERROR(spawn(
                   [](int) {
                     auto group = init_process_group({.backend = "nccl"});
                     Runtime runtime({.cuda = {0}});
                     Communicator communicator(runtime, group);
                   },
                   {.nprocs = 2}),
               "backend nccl cannot be used: ranks 0 and 1 have the same GPU");
  EXPECT_ERROR(spawn(
                   [](int rank) {
                     auto group = init_process_group({.backend = rank == 0 ? "nccl" : "host"});
                     Runtime runtime({.threads_per_shard = 1, .cuda = {rank}});
                     Communicator communicator(runtime, group);
                   },
                   {.nprocs = 2}),
               "rank 0 requested backend nccl, rank 1 requested host: all ranks need the same");
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void work(int rank, int signal, const std::string& transport, Shared& shared) {
  shared.pids[rank] = ::getpid();
  ::setenv("LOCKSTEP_TRANSPORT", transport.c_str(), 1);
  auto group = init_process_group({.timeout = std::chrono::seconds(2)});
  Runtime runtime({.threads_per_shard = 1, .cuda = {rank}});
  int sums = 0;
  auto device = std::make_shared<HookedSums>(runtime.devices()[0], [&] {
    if (++sums < 4 || rank != kVictim) return;
    shared.signaled = now();
    ::kill(::getpid(), signal);
  });
  auto reducer = group->make_tree_reducer({{100'000}, {{0}, {1}, {2}}}, CommChannel::bulk, device);
  reducer->set_present(0, 0, true);
  try {
    for (int step = 1; step < 1000; ++step) reducer->reduce({.label = fmt::format("bucket 3, step {}", step)});
  } catch (const CommError& error) {
    shared.seconds[rank] = now() - shared.signaled;
    shared.say(rank, error.what());
    check(error.lost_rank() == kVictim, "lost rank {}", error.lost_rank());
  }
  // A stopped process would never end.
  if (++shared.finished == kRanks - 1) ::kill(shared.pids[kVictim], SIGKILL);
}

TEST_F(NcclProcesses, ALostRankIsNamedInTime) {
  for (const char* transport : {"auto", "tcp"}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      SCOPED_TRACE(fmt::format("{}, signal {}", transport, signal));
      shared_->finished = 0;
      EXPECT_ERROR(spawn([&](int rank) { work(rank, signal, transport, *shared_); }, {.nprocs = kRanks}),
                   "rank 1 was killed by signal 9");
      const char* why = signal == SIGKILL ? "connection closed" : "no answer within 2 s";
      for (int rank : {0, 2}) {
        EXPECT_EQ(std::string(shared_->texts[rank]),
                  fmt::format("rank 1 lost ({}) during all-reduce of bucket 3, step 4", why));
        EXPECT_LT(shared_->seconds[rank], signal == SIGKILL ? 1.5 : 4.5);
      }
      for (const auto& pid : shared_->pids) EXPECT_EQ(::kill(pid, 0), -1) << "process " << pid << " is still there";
    }
  }
}

}  // namespace
}  // namespace lockstep
