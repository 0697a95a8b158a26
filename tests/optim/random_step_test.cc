// The keys of random operations depend on the steps of all optimizers of a runtime.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lockstep/autograd/functions.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

struct RandomJob {
  RandomJob() {
    for (Parameter* p : {&first, &second})
      p->initialize(p == &first ? "first" : "second", runtime.devices(), Constant{1}, 0);
  }
  // 32 elements: a bit for each that was kept.
  std::uint32_t mask(int shard = 0) {
    const std::vector<float> ones(32, 1.0F);
    std::vector<std::int64_t> rows(4);
    rows[static_cast<std::size_t>(shard)] = 32;
    const auto at = std::make_shared<Placement>(rows, std::vector<Slot>{{shard, runtime.devices()[0]}});
    const Tensor y = dropout(scatter(Tensor::from(ones, {32}), at), 0.5);
    std::uint32_t bits = 0;
    for (const float v : y.to_vector<float>()) bits = bits << 1 | (v != 0);
    return bits;
  }

  Runtime runtime{{.cpu_devices = 2, .cores_per_device = 1, .threads_per_shard = 1, .seed = 5}};
  Parameter first{ParameterOptions{.shape = {2}}}, second{ParameterOptions{.shape = {2}}};
};

// Taken when an optimizer still wrote its own number of steps.
TEST(RandomStep, MasksOfOneOptimizerStayWhatTheyWere) {
  RandomJob job;
  Sgd sgd({job.first, job.second}, {.lr = 0.1});
  std::vector<std::uint32_t> masks;
  for (int step = 0; step < 3; ++step) {
    for (const int shard : {0, 0, 3}) masks.push_back(job.mask(shard));
    sgd.step();
  }
  sgd.load_state_dict({}, 40);
  masks.push_back(job.mask());
  sgd.load_state_dict({}, 2);
  masks.push_back(job.mask());
  EXPECT_EQ(masks, (std::vector<std::uint32_t>{0x0c5d3e28, 0x2f88365b, 0xfad369f1, 0x6548fc64, 0x4b740167, 0x386a740e,
                                               0xafbf0639, 0x26a42769, 0x6d235f2a, 0x3ad3d5f5, 0xafbf0639}));
}

// As in adversarial training: a mask before each update.
std::vector<std::uint32_t> alternate(RandomJob& job, Optimizer& a, Optimizer& b, int rounds) {
  std::vector<std::uint32_t> masks;
  for (int round = 0; round < rounds; ++round) {
    for (Optimizer* optimizer : {&a, &b, &b}) {
      for (const int shard : {0, 1, 0}) masks.push_back(job.mask(shard));
      optimizer->step();
    }
  }
  return masks;
}

TEST(RandomStep, MasksOfTwoOptimizersDoNotRepeat) {
  const auto run = [] {
    RandomJob job;
    Sgd a({job.first}, {.lr = 0.1});
    Adam b({job.second}, {.lr = 0.1});
    return alternate(job, a, b, 10);
  };
  const std::vector<std::uint32_t> masks = run();
  EXPECT_EQ(std::set(masks.begin(), masks.end()).size(), masks.size());
  EXPECT_EQ(run(), masks);
}

// Their states alone say where the keys go on.
TEST(RandomStep, LoadedOptimizersGoOnWithNewMasks) {
  RandomJob whole;
  Sgd a({whole.first}, {.lr = 0.1}), b({whole.second}, {.lr = 0.1});
  alternate(whole, a, b, 3);
  RandomJob other;
  Sgd c({other.first}, {.lr = 0.1}), d({other.second}, {.lr = 0.1});
  d.load_state_dict(b.state_dict(), b.steps());
  c.load_state_dict(a.state_dict(), a.steps());
  EXPECT_EQ(alternate(other, c, d, 3), alternate(whole, a, b, 3));
}

}  // namespace
}  // namespace lockstep::testing
