// Sums in GPU memory, with pieces moved by NCCL. Ranks are threads, each with its own GPU.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <thread>

#include "lockstep/comm/device_links.h"
#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/gpu.h"
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"
#include "tests/environment_variable.h"
#include "tests/expect_error.h"
#include "tests/gpu/ranks/hooked_sums.h"
#include "tests/logical_tensors.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

struct Rank {
  std::shared_ptr<ProcessGroup> group;
  Runtime runtime;
  std::shared_ptr<SummingGpu> sums;
  Rank(std::shared_ptr<ProcessGroup> g, int gpu)
      : group(std::move(g)), runtime({.cuda = {gpu}}), sums(std::make_shared<SummingGpu>(runtime.devices()[0])) {}
};

class Nccl : public ::testing::TestWithParam<int> {
 protected:
  static bool gpus(int ranks) { return static_cast<int>(find_gpus().gpus.size()) >= ranks; }

  // The error of each rank; "" if it does not throw.
  static std::vector<std::string> on_all(int ranks, const std::function<void(Rank&)>& body,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    auto groups = make_local_groups(ranks, timeout);
    std::vector<std::string> errors(groups.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < groups.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          Rank rank(groups[r], static_cast<int>(r));
          body(rank);
        } catch (const std::exception& error) {
          errors[r] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
};

template <typename T>
std::vector<T> elements(std::size_t position, std::size_t count) {
  testing::Random random(position);
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(T(i % 7 == 0 ? -0.0f : static_cast<float>(random.uniform(-1, 1))));
  return values;
}

// Which gradients are present: all, none in one segment, or one leaf of several.
bool present(int round, int position, std::size_t segment) {
  if (round == 0) return true;
  return segment != 2 && (static_cast<std::size_t>(position) * 5 + segment + static_cast<std::size_t>(round)) % 3 != 0;
}

void copy(void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

template <typename T>
void expect_the_bits_of_the_host(Rank& rank, const TreeLayout& layout) {
  auto host = rank.group->make_tree_reducer(layout, CommChannel::bulk);
  auto gpu = rank.group->make_tree_reducer(layout, CommChannel::bulk, rank.sums);
  const std::vector<int>& own = layout.positions[static_cast<std::size_t>(rank.group->rank())];
  const GpuScope scope(rank.runtime.devices()[0].info()->gpu);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t k = 0; k < own.size(); ++k) {
      const auto values = elements<T>(static_cast<std::size_t>(own[k] + 100 * round), host->contribution(k).count);
      std::copy(values.begin(), values.end(), host->contribution(k).as<T>().begin());
      copy(gpu->contribution(k).data, values.data(), values.size() * sizeof(T));
      for (std::size_t s = 0; s < layout.segments.size(); ++s) {
        host->set_present(k, s, present(round, own[k], s));
        gpu->set_present(k, s, present(round, own[k], s));
      }
    }
    host->reduce({.label = "host"});
    gpu->reduce({.label = "gpu"});
    std::vector<float> result(gpu->result().size());
    copy(result.data(), gpu->result().data(), result.size() * sizeof(float));
    ASSERT_EQ(std::memcmp(result.data(), host->result().data(), result.size() * sizeof(float)), 0) << "round " << round;
    for (std::size_t s = 0; s < layout.segments.size(); ++s) {
      ASSERT_EQ(gpu->result_present(s), host->result_present(s)) << "segment " << s;
    }
  }
}

TEST_P(Nccl, SumsHaveTheBitsOfTheHost) {
  const auto n = static_cast<std::size_t>(GetParam());
  if (!gpus(GetParam())) GTEST_SKIP() << "fewer than " << n << " GPUs";
  std::vector<std::vector<int>> one_each(n), consecutive(n), dealt(n), few(n);
  for (int p = 0; p < 2 * GetParam() + 1; ++p) {
    if (p < GetParam()) one_each[static_cast<std::size_t>(p)] = {p};
    consecutive[std::min(static_cast<std::size_t>(p / 2), n - 1)].push_back(p);
    dealt[static_cast<std::size_t>(p) % n].push_back(p);
  }
  few[n - 1] = {1, 4};
  const auto errors = on_all(GetParam(), [&](Rank& rank) {
    for (const auto& positions : {one_each, consecutive, dealt, few}) {
      for (const std::vector<std::size_t>& segments :
           {std::vector<std::size_t>{128, 1024, 3, 0, 5000, 1}, std::vector<std::size_t>{1, 2, 3}}) {
        expect_the_bits_of_the_host<float>(rank, {segments, positions, DType::f32});
        expect_the_bits_of_the_host<BFloat16>(rank, {segments, positions, DType::bf16});
      }
    }
  });
  EXPECT_THAT(errors, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, ::testing::Values(2, 3, 4));

// Rank 1 calls `hook` in the middle of the third sum.
void sum_until(Rank& rank, const std::function<void()>& hook) {
  int sums = 0;
  auto device = std::make_shared<HookedSums>(rank.runtime.devices()[0], [&] {
    if (++sums == 3 && rank.group->rank() == 1) hook();
  });
  std::vector<std::vector<int>> positions;
  for (int r = 0; r < rank.group->size(); ++r) positions.push_back({r});
  auto reducer = rank.group->make_tree_reducer({{10'000}, positions}, CommChannel::bulk, device);
  for (int step = 1; step <= 5; ++step) {
    reducer->set_present(0, 0, true);
    reducer->reduce({.label = fmt::format("bucket 0, step {}", step)});
  }
}

TEST_F(Nccl, ARankThatThrowsInASumIsNamed) {
  if (!gpus(3)) GTEST_SKIP() << "fewer than 3 GPUs";
  const auto errors = on_all(3, [](Rank& rank) { sum_until(rank, [] { fail("out of luck"); }); });
  EXPECT_THAT(errors, Each("rank 1 gave up: out of luck; during all-reduce of bucket 0, step 3"));
}

TEST_F(Nccl, ARankThatIsToldToGiveUpInASumIsNamed) {
  if (!gpus(3)) GTEST_SKIP() << "fewer than 3 GPUs";
  const auto errors = on_all(3, [](Rank& rank) { sum_until(rank, [&] { rank.group->abort("interrupted"); }); });
  EXPECT_THAT(errors, Each("rank 1 gave up: interrupted; during all-reduce of bucket 0, step 3"));
}

TEST_F(Nccl, ARankThatIsStuckInASumIsNamedInTime) {
  if (!gpus(3)) GTEST_SKIP() << "fewer than 3 GPUs";
  const auto errors = on_all(
      3, [](Rank& rank) { sum_until(rank, [] { std::this_thread::sleep_for(std::chrono::seconds(4)); }); },
      std::chrono::seconds(1));
  EXPECT_EQ(errors[0], "rank 1 hangs (alive, but did not join within 1 s) during all-reduce of bucket 0, step 3");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST_F(Nccl, ARankThatDoesNotComeIsNamedInTime) {
  if (!gpus(2)) GTEST_SKIP() << "fewer than 2 GPUs";
  const auto errors = on_all(
      2,
      [](Rank& rank) {
        auto reducer = rank.group->make_tree_reducer({{1000}, {{0}, {1}}}, CommChannel::bulk, rank.sums);
        reducer->set_present(0, 0, true);
        if (rank.group->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        reducer->reduce({.label = "bucket 0, step 1"});
      },
      std::chrono::seconds(1));
  EXPECT_EQ(errors[0], "rank 1 hangs (alive, but did not join within 1 s) during all-reduce of bucket 0, step 1");
}

TEST_F(Nccl, AReducerOnOneRankAloneIsToldApart) {
  if (!gpus(2)) GTEST_SKIP() << "fewer than 2 GPUs";
  const auto errors = on_all(2, [](Rank& rank) {
    rank.group->make_tree_reducer({{1000}, {{0}, {1}}}, CommChannel::bulk,
                                  rank.group->rank() == 1 ? rank.sums : nullptr);
  });
  EXPECT_THAT(errors, Each(HasSubstr("disagree")));
}

TEST_F(Nccl, RefusesAGpuOfTwoRanks) {
  if (!gpus(1)) GTEST_SKIP() << "no GPU";
  auto groups = make_local_groups(2);
  std::vector<std::thread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&group] {
      Rank rank(group, 0);
      EXPECT_ERROR(group->make_tree_reducer({{1000}, {{0}, {1}}}, CommChannel::bulk, rank.sums), "NCCL on cuda:0");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The backends that the communicator chooses for the ranks' GPUs.
std::vector<std::string> backends(const std::vector<int>& gpus) {
  auto groups = make_local_groups(static_cast<int>(gpus.size()));
  std::vector<std::string> found(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      Runtime runtime(gpus[r] >= 0 ? RuntimeOptions{.cuda = {gpus[r]}} : RuntimeOptions{});
      Communicator communicator(runtime, groups[r]);
      EXPECT_EQ(communicator.summing_gpu() != nullptr, communicator.backend_name() == "nccl");
      found[r] = fmt::format("{} {}", communicator.backend_name(), communicator.why_not_nccl());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST_F(Nccl, IsUsedWhereEachRankHasAGpu) {
  if (!gpus(2)) GTEST_SKIP() << "fewer than 2 GPUs";
  EXPECT_THAT(backends({0, 1}), Each("nccl "));
  EXPECT_THAT(backends({0, 0}), Each("local ranks 0 and 1 have the same GPU"));
  EXPECT_THAT(backends({0, -1}), Each("local rank 1 has no GPU"));
  EXPECT_THAT(backends({-1, -1}), Each("local "));
  const EnvironmentVariable share("LOCKSTEP_NCCL_SHARE_GPU", "1");
  EXPECT_THAT(backends({0, 0}), Each("nccl "));
}

TEST_F(Nccl, RanksOfAHostDivideItsGpus) {
  const auto own = [](const char* rank, const char* size) {
    const EnvironmentVariable local_rank("LOCAL_RANK", rank), local_size("LOCAL_WORLD_SIZE", size);
    return find_devices().options.cuda;
  };
  if (find_gpus().gpus.size() != 8) GTEST_SKIP() << "there are not 8 GPUs";
  EXPECT_EQ(own("0", "2"), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(own("2", "3"), (std::vector{5, 6, 7}));
  EXPECT_EQ(own("7", "8"), std::vector{7});
  EXPECT_EQ(own("2", "16"), std::vector{1});
  EXPECT_EQ(own("15", "16"), std::vector{7});
}

}  // namespace
}  // namespace lockstep
