#include "lockstep/parallel/stop_votes.h"

#include <gtest/gtest.h>

#include "lockstep/nn/linear.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

TEST(StopVotes, AreCountedWithoutAnExchangeOfShards) {
  expect_fine(run_ranks(3, [](Rank& r) {
    StopVotes votes(r.communicator);
    votes.cast(r.rank() != 1);
    EXPECT_EQ(votes.count().item<float>(), 2);
    votes.cast(false);
    EXPECT_EQ(votes.count().item<float>(), 0);
  }));
}

// Ranks have one, two, and no shards with samples.
TEST(StopVotes, TravelWithAnExchangeAndLeaveItsValuesAlone) {
  expect_fine(run_ranks(3, [](Rank& r) {
    Linear net({.in_features = 1, .out_features = 1, .bias = false});
    net.initialize(Constant{1}, r.runtime.devices());
    DistributedDataParallel<Linear> ddp(net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
    for (int step = 0; step < 5; ++step) {
      const Tensor all = Tensor::from(std::vector<float>{1, 2, 3}, {3, 1});
      const auto [first, last] = ddp.rows_of(3);
      const Tensor x = ddp.split(std::vector<Tensor>{all.narrow(0, first, last - first)}, 3)[0];
      ddp.stop_votes().cast(r.rank() == step % 3);
      const Tensor loss = mean(net(x));
      EXPECT_FALSE(ddp.stop_votes().take());  // the exchange of the loss has it
      const Tensor other = sum(net(x));
      EXPECT_EQ(ddp.stop_votes().count().item<float>(), 1);
      EXPECT_EQ(loss.item<float>(), 2);
      EXPECT_EQ(other.item<float>(), 6);
    }
  }));
}

TEST(StopVotes, WithoutAVoteThereIsNoCount) {
  expect_fine(run_ranks(2, [](Rank& r) { EXPECT_FALSE(StopVotes(r.communicator).count().defined()); }));
}

}  // namespace
}  // namespace lockstep
