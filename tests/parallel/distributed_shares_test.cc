// Ranks and devices with different numbers of shards.
#include <gtest/gtest.h>

#include "lockstep/autograd/placement.h"
#include "lockstep/nn/parameter.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/expect_error.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

TEST(DistributedShares, FollowTheWeightsOfAllDevices) {
  expect_fine(run_ranks(
      2,
      [](Rank& r) {
        auto net = two_layers();
        net->initialize(Xavier{}, r.runtime.devices());
        DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator,
                                    {.split = {.shards = 8, .balance = {.weights = {1, 2, 4, 1}}}});
        EXPECT_EQ(ddp.shares(), JobShares({{1, 2}, {4, 1}}));
        const auto rows =
            r.rank() == 0 ? std::pair<std::int64_t, std::int64_t>(0, 6) : std::pair<std::int64_t, std::int64_t>(6, 16);
        EXPECT_EQ(ddp.rows_of(16), rows);
        const std::vector<Tensor> all{Tensor::host({rows.second - rows.first, 4})};
        const Tensor x = ddp.split(all, 16)[0];
        const std::vector<Slot> slots = x->at->slots();
        ASSERT_EQ(slots.size(), r.rank() == 0 ? 3u : 5u);
        for (const Slot& slot : slots) {
          EXPECT_EQ(slot.device, r.runtime.devices()[slot.shard == 0 || (slot.shard >= 3 && slot.shard < 7) ? 0 : 1])
              << slot.shard;
        }
        ddp.set_shares(JobShares({{4, 2}, {1, 1}}));
        EXPECT_EQ(ddp.rows_of(16).second, r.rank() == 0 ? 12 : 16);
      },
      2));
}

TEST(DistributedShares, ChangeBetweenStepsOnlyAndLeaveNoRankWithout) {
  expect_fine(run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
    EXPECT_ERROR(ddp.set_shares(JobShares({{2}, {3}})),
                 "shares 2,3 of the devices, expected 4 shards on as many devices as before");
    EXPECT_ERROR(ddp.set_shares(JobShares({{2, 1}, {1}})), "expected 4 shards on as many devices as before");
    EXPECT_ERROR(ddp.set_shares(JobShares({{4}, {0}})), "rank 1 has no shard, expected at least one");
    const auto backward = [&] {
      const auto [first, last] = ddp.rows_of(4);
      const std::vector<Tensor> rows{Tensor::host({last - first, 4}), Tensor::host({last - first, 2})};
      const auto parts = ddp.split(rows, 4);
      mse_loss(ddp(parts[0]), parts[1]).backward();
    };
    const auto clear = [&] {
      for (Parameter& p : net->parameters()) p.zero_grad();
    };
    backward();
    EXPECT_ERROR(ddp.set_shares(JobShares({{3}, {1}})), "call step() or zero_grad() first");
    clear();
    {
      const auto guard = ddp.no_sync();
      backward();
    }
    EXPECT_ERROR(ddp.set_shares(JobShares({{3}, {1}})), "call step() or zero_grad() first");
    clear();
    ddp.set_shares(JobShares({{3}, {1}}));
    backward();
    clear();
  }));
}

TEST(DistributedShares, RanksThatWantOtherWeightsAreToldSo) {
  const auto errors = run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator,
                                {.split = {.shards = 4, .balance = {.weights = {1.0, r.rank() == 0 ? 1.0 : 2.0}}}});
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("has 'balance 1,2' where rank 0 has 'balance 1,1'"), std::string::npos) << error;
}

}  // namespace
}  // namespace lockstep
