// Ranks that agree on whether to go on.
#include <gtest/gtest.h>

#include "lockstep/nn/linear.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

TEST(Votes, AreCountedWithoutAnExchangeOfShards) {
  expect_fine(run_ranks(3, [](Rank& r) {
    r.communicator->vote(r.rank() != 1);
    EXPECT_EQ(r.communicator->votes().item<float>(), 2);
    r.communicator->vote(false);
    EXPECT_EQ(r.communicator->votes().item<float>(), 0);
  }));
}

// Ranks have one, two, and no shards with samples.
TEST(Votes, TravelWithAnExchangeAndLeaveItsValuesAlone) {
  expect_fine(run_ranks(3, [](Rank& r) {
    Linear net({.in_features = 1, .out_features = 1, .bias = false});
    net.initialize(Constant{1}, r.runtime.devices());
    DistributedDataParallel<Linear> ddp(net, r.runtime.devices(), r.communicator, {.shards = 4});
    for (int step = 0; step < 5; ++step) {
      const Tensor all = Tensor::from(std::vector<float>{1, 2, 3}, {3, 1});
      const auto [first, last] = ddp.rows_of(3);
      const Tensor x = ddp.split(std::vector<Tensor>{all.narrow(first, last - first)}, 3)[0];
      r.communicator->vote(r.rank() == step % 3);
      const Tensor loss = mean(net(x));
      EXPECT_FALSE(r.communicator->take_vote());  // the exchange of the loss has it
      const Tensor other = sum(net(x));
      EXPECT_EQ(r.communicator->votes().item<float>(), 1);
      EXPECT_EQ(loss.item<float>(), 2);
      EXPECT_EQ(other.item<float>(), 6);
    }
  }));
}

TEST(Votes, WithoutAVoteThereAreNone) {
  expect_fine(run_ranks(2, [](Rank& r) { EXPECT_FALSE(r.communicator->votes().defined()); }));
}

}  // namespace
}  // namespace lockstep
