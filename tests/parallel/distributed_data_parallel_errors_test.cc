// Mistakes of ranks that train together, and failures in one of them: all ranks throw the error.
#include <gtest/gtest.h>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/models/mlp.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/ops/launch.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/split.h"
#include "lockstep/tensor/storage.h"
#include "tests/logical_tensors.h"
#include "tests/parallel/ranks.h"

namespace lockstep {
namespace {

TEST(DistributedDataParallel, RanksThatDifferAreToldWhere) {
  auto errors = run_ranks(3, [](Rank& r) {
    auto net = two_layers(r.rank() == 1 ? 16 : 8);
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error,
              "rank 1: has 'parameter 0.weight [16, 4] f32' where rank 0 has 'parameter 0.weight [8, 4] f32': all "
              "ranks need the same model and recipe");
  }
  errors = run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator,
                                {.recipe = r.rank() == 0 ? "seed 0\nclip_norm 1" : "seed 0"});
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find("rank 1: has nothing where rank 0 has 'clip_norm 1'"), std::string::npos) << errors[0];
  errors = run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator,
                                {.buckets = {.bytes = r.rank() == 0 ? 1000 : 2000}});
  });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(errors[0].find("rank 1: has 'buckets of 1048576 and 2000 bytes' where rank 0 has 'buckets of "), 0u)
      << errors[0];
}

TEST(DistributedDataParallel, ShapesHaveToBeKnown) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         auto net = mlp();
         net->initialize(Xavier{}, r.runtime.devices());
         DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
       })) {
    EXPECT_NE(error.find("pass an example through the model first"), std::string::npos) << error;
  }
}

struct TwoLinear : Module {
  Linear a{{.in_features = 4, .out_features = 4}}, b{{.in_features = 4, .out_features = 2}};
  Tensor hidden;
  TwoLinear() { add("a", a), add("b", b); }
  Tensor forward(const Tensor& x) override { return b(hidden = a(x)); }
};

// Two gradients of one bucket: the second one's success does not make up for the first one's failure.
TEST(DistributedDataParallel, AGradientThatFailsIsNotSummed) {
  for (const std::string& error : run_ranks(
           2,
           [](Rank& r) {
             TwoLinear net;
             net.initialize(Xavier{}, r.runtime.devices());
             DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator);
             Sgd sgd(net.parameters(), {.lr = 0.1});
             testing::Random random(1);
             for (int step = 0; step < 2; ++step) {
               auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
               Tensor out = ddp(x);
               // The gradient of b's weight is the only one that needs what b was given.
               if (step == 1 && r.rank() == 1) {
                 // A task that fails late, not a change in place, which backward() would refuse.
                 auto& version = net.hidden->parts[0].storage()->version;
                 const std::uint64_t before = version;
                 ops::launch("broken", {}, {net.hidden->parts[0]},
                             [](Backend&, KernelContext&) { fail("this task is broken"); });
                 version = before;
               }
               mse_loss(out, y).backward();
               sgd.step();
             }
             net.b.weight.host_data();
           },
           1, std::chrono::seconds(5))) {
    EXPECT_NE(error.find("this task is broken"), std::string::npos) << error;
  }
}

// The other rank waits in the exchange of the loss. It learns why, and the ranks do not go on with different steps.
TEST(DistributedDataParallel, ABatchThatFailsInOneRankEndsTheJobInAll) {
  std::vector<std::string> second(2);
  const auto errors = run_ranks(
      2,
      [&](Rank& r) {
        auto net = two_layers();
        net->initialize(Xavier{}, r.runtime.devices());
        DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
        Sgd sgd(net->parameters(), {.lr = 0.1});
        testing::Random random(1);
        std::string first;
        for (int step = 0; step < 3; ++step) {
          std::vector<std::int64_t> labels(4, 1);
          if (step == 1 && r.rank() == 1) labels[2] = 99;
          try {
            auto [x, y] = ddp.split<2>({random.floats({4, 4}), Tensor::from(labels, {4})});
            const Tensor loss = cross_entropy(ddp(x), y);
            loss.backward();
            sgd.step();
            loss.item();
          } catch (const Error& error) {
            EXPECT_GE(step, 1);
            (first.empty() ? first : second[static_cast<std::size_t>(r.rank())]) = error.what();
          }
        }
        fail("{}", first);
      },
      1, std::chrono::seconds(30));
  for (const std::vector<std::string>& messages : {errors, second}) {
    for (const std::string& error : messages)
      EXPECT_NE(error.find("label 99 of sample 6 is outside [0, 2)"), std::string::npos) << error;
  }
}

// A job of one rank has nobody to wait for it.
TEST(DistributedDataParallel, OneRankAloneTrainsOnAfterABatchThatFails) {
  std::vector<std::vector<float>> weights;
  for (const bool fails : {false, true}) {
    expect_fine(run_ranks(1, [&](Rank& r) {
      auto net = two_layers();
      net->initialize(Xavier{}, r.runtime.devices());
      DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
      Sgd sgd(net->parameters(), {.lr = 0.1, .momentum = 0.9});
      for (int step = 0; step < 4; ++step) {
        if (step == 1 && !fails) continue;
        testing::Random random(static_cast<std::uint64_t>(step));
        auto [x, y] = ddp.split<2>(
            {random.floats({4, 4}), Tensor::from(std::vector<std::int64_t>{0, 1, step == 1 ? 99 : 0, 1}, {4})});
        const Tensor loss = cross_entropy(ddp(x), y);
        loss.backward();
        if (step == 1) {
          // The gradient stays behind.
          EXPECT_THROW(loss.item(), TaskError);
        } else {
          sgd.step();
          loss.item();
        }
      }
      weights.push_back(net->parameters()[0].host_data().to_vector<float>());
    }));
  }
  EXPECT_EQ(weights.at(0), weights.at(1));
}

// Two layers side by side, one of which some batches leave out.
struct SideBySide : Module {
  Linear a{{.in_features = 4, .out_features = 2}}, b{{.in_features = 4, .out_features = 2}};
  bool both = true;
  SideBySide() { add("a", a), add("b", b); }
  Tensor forward(const Tensor& x) override { return both ? a(x) + b(x) : a(x); }
};

// Trains one rank on good batches, for which only `a` is used, with or without a bad one before them.
std::vector<std::string> train_side_by_side(const BucketOptions& buckets,
                                            const std::function<Tensor(SideBySide&, Tensor)>& bad, bool sync = true) {
  std::vector<std::string> hashes;
  for (const bool fails : {false, true}) {
    expect_fine(run_ranks(1, [&](Rank& r) {
      SideBySide net;
      net.initialize(Xavier{}, r.runtime.devices());
      DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator, {.buckets = buckets});
      Sgd sgd(net.parameters(), {.lr = 0.1});
      testing::Random random(1);
      const auto loss_of = [&](std::int64_t label) {
        const auto [x, y] =
            ddp.split<2>({random.floats({2, 4}), Tensor::from(std::vector<std::int64_t>{0, label}, {2})});
        return cross_entropy(ddp(x), y);
      };
      // Both layers are in the buckets.
      loss_of(1).backward();
      sgd.step();
      const Tensor other = loss_of(fails ? 9 : 1);
      if (fails) {
        const Tensor loss = bad(net, other);
        const auto held = sync ? nullptr : ddp.no_sync();
        loss.backward();
        EXPECT_THROW(loss.item(), TaskError);
      }
      net.both = false;
      loss_of(1).backward();
      sgd.step();
      hashes.push_back(weights_sha256(net));
      r.runtime.synchronize();
    }));
  }
  return hashes;
}

// Its sum lies in the failed bucket.
TEST(DistributedDataParallel, AParameterWithoutAGradientDoesNotFailTheNextStep) {
  const auto hashes = train_side_by_side({}, [](SideBySide&, const Tensor& loss) { return loss; });
  EXPECT_EQ(hashes.at(0), hashes.at(1));
}

// Its gradient waits in the layer that the next batch leaves out.
TEST(DistributedDataParallel, AnUnsynchronizedBatchThatFailsDoesNotFailTheNextStep) {
  const auto hashes = train_side_by_side(
      {}, [](SideBySide&, const Tensor& loss) { return loss; }, false);
  EXPECT_EQ(hashes.at(0), hashes.at(1));
}

// The sum of the penalty is good, but its loss is not.
TEST(DistributedDataParallel, AGoodSumOfAFailedLossDoesNotJoinTheNextStep) {
  const auto hashes = train_side_by_side({.bytes = 1, .first_bytes = 1}, [](SideBySide& net, const Tensor& loss) {
    return loss.detach() + sum(square(net.b.weight)) + sum(square(net.a.weight));
  });
  EXPECT_EQ(hashes.at(0), hashes.at(1));
}

// The sums of a step's micro-batches use one memory in every step.
TEST(DistributedDataParallel, OneRankAloneTrainsOnAfterAMicroBatchThatFails) {
  expect_fine(run_ranks(1, [](Rank& r) {
    Linear net({.in_features = 2, .out_features = 3});
    net.initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(net, r.runtime.devices(), r.communicator);
    Sgd sgd(net.parameters(), {.lr = 0.1});
    for (int step = 0; step < 4; ++step) {
      const std::string before = weights_sha256(net);
      const bool fails = step == 1;
      Tensor loss;
      for (const std::int64_t label : {1, fails ? 9 : 2}) {
        const Example batch{Tensor::from<float>({1, 2, 3, 4}, {2, 2}), Tensor::from<std::int64_t>({0, label}, {2})};
        const Example parts = ddp.split(batch, 2);
        loss = cross_entropy(ddp(parts[0]), parts[1]);
        loss.backward({.share = 0.5});
      }
      sgd.step();
      if (fails) {
        EXPECT_THROW(loss.item(), TaskError);
      } else {
        loss.item();
      }
      EXPECT_EQ(weights_sha256(net) == before, fails) << step;
    }
    EXPECT_EQ(sgd.steps(), 3);
  }));
}

TEST(DistributedDataParallel, OnlyOneSumsAModelsGradients) {
  for (const std::string& error : run_ranks(2, [](Rank& r) {
         auto net = two_layers();
         net->initialize(Xavier{}, r.runtime.devices());
         DistributedDataParallel first(*net, r.runtime.devices(), r.communicator);
         DistributedDataParallel second(*net, r.runtime.devices(), r.communicator);
       })) {
    EXPECT_NE(error.find("another DistributedDataParallel sums its gradients"), std::string::npos) << error;
  }
}

// It would be trained by each rank alone.
TEST(DistributedDataParallel, AParameterOfAnotherModuleIsToldApart) {
  for (const std::string& error : run_ranks(2, [&](Rank& r) {
         auto net = two_layers();
         Linear head({.in_features = 2, .out_features = 2});
         net->initialize(Xavier{}, r.runtime.devices());
         head.initialize(Xavier{}, r.runtime.devices());
         DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
         auto [x, y] =
             ddp.split<2>({Tensor::from(std::vector<float>(12), {3, 4}), Tensor::from(std::vector<float>(6), {3, 2})});
         mse_loss(head(ddp(x)), y).backward();
       })) {
    EXPECT_NE(error.find("is not summed over processes: it is not part of the module"), std::string::npos) << error;
  }
}

// It would be added to what other ranks do not have.
TEST(DistributedDataParallel, ALossOfAnotherBatchIsToldApart) {
  for (const std::string& error : run_ranks(2, [&](Rank& r) {
         auto net = two_layers();
         net->initialize(Xavier{}, r.runtime.devices());
         DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
         const Tensor x = split_and_load(Tensor::from(std::vector<float>(12), {3, 4}), r.runtime.devices());
         sum(ddp(x)).backward();
       })) {
    EXPECT_NE(error.find("the loss is not made of a batch that it cut"), std::string::npos) << error;
  }
}

TEST(DistributedDataParallel, ANoSyncOnOneRankIsToldApart) {
  auto errors = run_ranks(2, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    Sgd sgd(net->parameters(), {.lr = 0.1});
    testing::Random random(1);
    for (int i = 0; i < 2; ++i) {
      std::unique_ptr<NoSyncGuard> guard = i == 0 && r.rank() == 0 ? ddp.no_sync() : nullptr;
      auto [x, y] = ddp.split<2>({random.floats({4, 4}), random.floats({4, 2})});
      mse_loss(ddp(x), y).backward();
    }
    sgd.step();
    weights_sha256(*net);
  });
  EXPECT_NE(errors[0].find("disagree"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("backward 2"), std::string::npos) << errors[0];
}

TEST(DistributedDataParallel, ARankThatGivesUpIsNamedByTheOthers) {
  auto errors = run_ranks(3, [](Rank& r) {
    auto net = two_layers();
    net->initialize(Xavier{}, r.runtime.devices());
    DistributedDataParallel ddp(*net, r.runtime.devices(), r.communicator);
    Sgd sgd(net->parameters(), {.lr = 0.1});
    testing::Random random(1);
    for (int step = 0; step < 4; ++step) {
      if (step == 2 && r.rank() == 1) fail("no more rows");
      Tensor x = ddp.split(std::vector<Tensor>{random.floats({2, 4})}, 6)[0];
      Tensor y = ddp.split(std::vector<Tensor>{random.floats({2, 2})}, 6)[0];
      mse_loss(ddp(x), y).backward();
      sgd.step();
      weights_sha256(*net);
    }
  });
  EXPECT_EQ(errors[1], "no more rows");
  for (int r : {0, 2}) {
    const std::string& error = errors[static_cast<std::size_t>(r)];
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    EXPECT_NE(error.find("no more rows"), std::string::npos) << error;
    // The first exchange that waited.
    EXPECT_NE(error.find("during all-gather of mse"), std::string::npos) << error;
  }
}

// The remainder of an epoch: the shards of rank 0 have enough samples.
TEST(DistributedDataParallel, AShardOfOneSampleIsAnErrorOfBatchNormOnAllRanks) {
  const std::vector<std::string> errors = run_ranks(2, [](Rank& r) {
    Sequential net;
    net.append(Linear({.in_features = 4, .out_features = 3})).append(BatchNorm1d({.channels = 3}));
    net.initialize(Xavier{}, r.runtime.devices());
    DistributedModel ddp(net, r.runtime.devices(), r.communicator, {.split = {.shards = 4}});
    const std::int64_t samples = 7;
    const auto [first, last] = ddp.rows_of(samples);
    const std::vector<Tensor> rows{Tensor::host({samples, 4}).narrow(0, first, last - first)};
    net(ddp.split(rows, samples)[0]);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("batch_norm: shard 3 of 4 has 1 sample with 1 value per channel (7 samples in all), expected "
                         "more than 1 value per channel in training"),
              std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace lockstep
