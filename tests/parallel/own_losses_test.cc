// Ranks with losses of their own, as with torch's DistributedDataParallel: gradients of the model's parameters are the
// means of all ranks', and those of everything before and behind it are each rank's own.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/grad.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

using Numbers = std::vector<double>;

// y = x w + b, with w = 1 and b = 0.
struct Model {
  Model(Rank& r, std::int64_t outputs = 1, int shards = 0)
      : net({.in_features = 1, .out_features = outputs}),
        ddp(initialized(net, r), r.runtime.devices(), r.communicator, {.split = {.shards = shards}}) {}
  static Linear& initialized(Linear& net, Rank& r) {
    net.initialize(Constant{1}, r.runtime.devices());
    return net;
  }
  Numbers gradient() { return testing::values(net.weight.gradient()); }

  Linear net;
  DistributedDataParallel<Linear> ddp;
};

// The rows of a rank: 1 2 3 on rank 0, 2 4 6 on rank 1.
Tensor rows(const Rank& r) {
  const auto n = static_cast<float>(r.rank() + 1);
  return Tensor::from(std::vector<float>{n, 2 * n, 3 * n}, {3, 1});
}

void on_ranks_and_devices(const std::function<void(Rank&, int world)>& body) {
  for (const int world : {1, 2, 3}) {
    for (const int devices : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} devices", world, devices));
      expect_fine(run_ranks(
          world, [&](Rank& r) { body(r, world); }, devices));
    }
  }
}

TEST(OwnLosses, GiveTheMeanToTheModelAndTheRestToTheRank) {
  on_ranks_and_devices([](Rank& r, int world) {
    Model m(r);
    Linear before({.in_features = 1, .out_features = 1, .bias = false}), behind({.in_features = 1, .out_features = 1});
    before.initialize(Constant{2}, {r.runtime.devices()[0]});
    behind.initialize(Constant{3}, {r.runtime.devices()[0]});
    Tensor x = rows(r);
    x.set_requires_grad(true);
    const Tensor y = m.ddp(before(x));
    EXPECT_EQ(y.shape(), (Shape{3, 1}));
    const double n = r.rank() + 1, mean = (world + 1) / 2.0;
    sum(behind(y)).backward();
    EXPECT_EQ(testing::values(x.grad()), (Numbers{6, 6, 6}));
    EXPECT_EQ(testing::values(before.weight.gradient()), Numbers{3 * 6 * n});
    EXPECT_EQ(testing::values(behind.weight.gradient()), Numbers{12 * n});
    EXPECT_NEAR(m.gradient()[0], 3 * 12 * mean, 1e-4);
  });
}

// A penalty of the model's own weights is a part of each rank's loss, and so is a use of them behind the model.
TEST(OwnLosses, MayUseTheModelsParametersOutside) {
  on_ranks_and_devices([](Rank& r, int world) {
    const double n = r.rank() + 1, mean = (world + 1) / 2.0;
    Model m(r);
    (sum(m.ddp(rows(r))) + n * sum(m.net.weight.tensor())).backward();
    EXPECT_NEAR(m.gradient()[0], 6 * mean + mean, 1e-5);
    m.net.weight.zero_grad();
    sum(m.ddp(rows(r)) * m.net.weight.tensor()).backward();
    EXPECT_NEAR(m.gradient()[0], 12 * mean, 1e-5);
  });
}

TEST(OwnLosses, GoThroughTwoModels) {
  on_ranks_and_devices([](Rank& r, int world) {
    Model first(r), second(r, 1, 12);
    sum(second.ddp(first.ddp(rows(r)))).backward();
    const double mean = (world + 1) / 2.0;
    EXPECT_NEAR(first.gradient()[0], 6 * mean, 1e-5);
    EXPECT_NEAR(second.gradient()[0], 6 * mean, 1e-5);
  });
}

TEST(OwnLosses, OfWhichGradReturnsTheRanksOwn) {
  on_ranks_and_devices([](Rank& r, int) {
    Model m(r);
    Tensor x = rows(r);
    x.set_requires_grad(true);
    const Tensor loss = sum(m.ddp(x)), inputs[] = {x, m.net.weight.tensor()}, none[] = {Tensor()};
    const auto found = grad({&loss, 1}, inputs, none);
    EXPECT_EQ(testing::values(found[0]), (Numbers{1, 1, 1}));
    EXPECT_EQ(testing::values(found[1]), Numbers{6.0 * (r.rank() + 1)});
  });
}

TEST(OwnLosses, AddUpOverMicroBatches) {
  on_ranks_and_devices([](Rank& r, int world) {
    Model m(r);
    {
      const auto later = m.ddp.no_sync();
      sum(m.ddp(rows(r))).backward();
    }
    sum(m.ddp(2 * rows(r))).backward();
    EXPECT_NEAR(m.gradient()[0], 18 * (world + 1) / 2.0, 1e-4);
  });
}

// A loss that the model computes is of this rank's rows; batch norm's statistics are of all ranks'.
struct LossInside : Module {
  BatchNorm1d& norm = make<BatchNorm1d>("norm", 1);
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& scale) { return {norm(x), mean(x * scale)}; }
};

TEST(OwnLosses, MayBeComputedInside) {
  expect_fine(run_ranks(2, [](Rank& r) {
    LossInside net;
    net.to(r.runtime.devices());
    DistributedDataParallel<LossInside> ddp(net, r.runtime.devices(), r.communicator);
    Tensor scale = tensor({5.0F});
    scale.set_requires_grad(true);
    const auto [y, loss] = ddp(rows(r), scale);
    EXPECT_EQ(loss.item(), 10 * (r.rank() + 1));
    (loss + 0 * sum(y)).backward();
    EXPECT_EQ(testing::values(scale.grad()), Numbers{2.0 * (r.rank() + 1)});
    EXPECT_NEAR(testing::values(net.norm.running_mean.tensor())[0], 0.1 * 3, 1e-6);
  }));
}

TEST(OwnLosses, OfUnequalRowsAreRefused) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         Model m(r);
         m.ddp(rows(r).narrow(0, 0, 2 - r.rank()));
       })) {
    EXPECT_NE(error.find("rank 0 has 2 rows of this batch, rank 1 has 1"), std::string::npos) << error;
  }
}

TEST(OwnLosses, NeedTheWrapper) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         Linear net({.in_features = 1, .out_features = 1});
         net.initialize(Constant{1}, r.runtime.devices());
         Tensor loss;
         {
           DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator);
           loss = sum(ddp(rows(r)));
         }
         loss.backward();
       })) {
    EXPECT_NE(error.find("the DistributedDataParallel that cut a batch of this loss is gone"), std::string::npos)
        << error;
  }
}

// Parameters outside of the model are refused on all ranks where the loss is the job's, in any order of the graph.
TEST(OwnLosses, OfOutsideParametersAreRefusedForALossOfTheJob) {
  for (const bool first : {false, true}) {
    for (const std::string& error : run_ranks(2, [&](Rank& r) {
           Model m(r);
           Linear outside({.in_features = 1, .out_features = 1, .bias = false});
           outside.initialize(Constant{1}, r.runtime.devices());
           const Tensor y = gather(m.ddp(m.ddp.split(std::array{rows(r)})[0])), w = outside.weight.tensor();
           sum(first ? w * y : y * w).backward();
         })) {
      EXPECT_NE(error.find("is not summed over processes"), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace lockstep
