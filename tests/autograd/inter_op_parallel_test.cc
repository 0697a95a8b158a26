// InterOpParallelGuard: independent operations of one device use several lanes, with the same bits.
#include "lockstep/ops/inter_op_parallel_guard.h"

#include <gtest/gtest.h>

#include <future>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::testing {
namespace {

using Floats = std::vector<float>;

class InterOpParallelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (lanes().size() < 2) GTEST_SKIP() << "this process has one core";
  }

  Device device() { return runtime_.devices()[0]; }
  const std::vector<LaneId>& lanes() { return state_of(device(), "test").compute_lanes; }
  // Tasks that each compute lane has completed.
  std::vector<std::int64_t> completed() {
    std::vector<std::int64_t> counts;
    for (LaneId lane : lanes()) counts.push_back(runtime_.engine().lane_counters()[lane.index].completed);
    return counts;
  }
  // The number of compute lanes on which `describe` runs tasks. They begin when all are described, so that the time
  // that a task takes does not matter.
  template <typename Describe>
  int lanes_used(const Tensor& read_by_all, Describe describe) {
    runtime_.synchronize();
    const std::vector<std::int64_t> before = completed();
    std::promise<void> described;
    runtime_.engine().push({.name = "hold",
                            .lane = state_of(device(), "test").copy_in_lane,
                            .writes = {read_by_all->resource()},
                            .run = [wait = described.get_future().share()](const TaskContext&) { wait.wait(); }});
    describe();
    described.set_value();
    runtime_.synchronize();
    const std::vector<std::int64_t> after = completed();
    int used = 0;
    for (std::size_t i = 0; i < after.size(); ++i) used += after[i] > before[i];
    return used;
  }

  Runtime runtime_{{.cores_per_device = 2, .threads_per_shard = 1}};
};

TEST_F(InterOpParallelTest, IndependentOperationsUseAllLanes) {
  const Tensor x = rand({16, 16}, {.device = device()});
  auto products = [&] {
    std::vector<Tensor> y;
    for (int i = 0; i < 8; ++i) y.push_back(matmul(x, x) * i);
    return y;
  };
  std::vector<Tensor> parallel;
  EXPECT_EQ(lanes_used(x,
                       [&] {
                         const InterOpParallelGuard guard;
                         parallel = products();
                       }),
            2);
  std::vector<Tensor> one_by_one;
  EXPECT_EQ(lanes_used(x, [&] { one_by_one = products(); }), 1);
  for (std::size_t i = 0; i < parallel.size(); ++i) {
    EXPECT_EQ(parallel[i].to_vector<float>(), one_by_one[i].to_vector<float>());
  }
}

// A chain has nothing that could run beside it.
TEST_F(InterOpParallelTest, AChainStaysOnOneLane) {
  const Tensor x = rand({16, 16}, {.device = device()});
  EXPECT_EQ(lanes_used(x,
                       [&] {
                         const InterOpParallelGuard guard;
                         Tensor y = x;
                         for (int i = 0; i < 8; ++i) y = matmul(y, x);
                       }),
            1);
}

// Branches that share a leaf, and meet in one sum.
TEST_F(InterOpParallelTest, GradientsHaveTheSameBits) {
  Tensor w = rand({16, 16}, {.device = device(), .seed = 1});
  w.set_requires_grad(true);
  const Tensor x = rand({16, 16}, {.device = device(), .seed = 2});
  auto loss = [&] {
    Tensor sum_of_all = zeros({16, 16}, {.device = device()});
    for (int i = 0; i < 8; ++i) sum_of_all = sum_of_all + tanh(matmul(x, w) * (0.1 * i));
    return mean(sum_of_all);
  };
  loss().backward();
  const Floats expected = w.grad().to_vector<float>();
  w.zero_grad();
  Tensor described;
  EXPECT_EQ(lanes_used(x,
                       [&] {
                         const InterOpParallelGuard guard;
                         described = loss();
                       }),
            2);
  EXPECT_EQ(lanes_used(x,
                       [&] {
                         const InterOpParallelGuard guard;
                         described.backward();
                       }),
            2);
  EXPECT_EQ(w.grad().to_vector<float>(), expected);
}

TEST_F(InterOpParallelTest, EndsWithTheOutermostScope) {
  EXPECT_FALSE(InterOpParallelGuard::active());
  {
    const InterOpParallelGuard outer;
    { const InterOpParallelGuard inner; }
    EXPECT_TRUE(InterOpParallelGuard::active());
    // A guard is its thread's alone.
    EXPECT_FALSE(std::async(std::launch::async, &InterOpParallelGuard::active).get());
  }
  EXPECT_FALSE(InterOpParallelGuard::active());
}

}  // namespace
}  // namespace lockstep::testing
