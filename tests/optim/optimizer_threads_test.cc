#include <gtest/gtest.h>

#include <thread>

#include "lockstep/nn/linear.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"

namespace lockstep::testing {
namespace {

TEST(OptimizerThreads, OneThreadAtATime) {
  Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  Linear net({.in_features = 2, .out_features = 1});
  net.initialize(Constant{1}, runtime.devices());
  Sgd sgd(net.parameters(), {.lr = 0.5});
  const Tensor x = Tensor::from<float>({1, 2}, {1, 2}).to(runtime.devices()[0]);
  sum(net(x)).backward();
  sgd.map_gradients([&](const Tensor& g, const Parameter&) {
    std::thread([&] {
      EXPECT_ERROR(sgd.step(), "step: the optimizer: another thread is using it");
      EXPECT_ERROR(sgd.zero_grad(), "another thread is using it");
      EXPECT_ERROR(static_cast<void>(sgd.clip_grad_norm(1)), "another thread is using it");
    }).join();
    return g * 1;
  });
  std::thread([&] { sgd.step(); }).join();
  EXPECT_EQ(net.weight.host_data().to_vector<float>(), (std::vector<float>{0.5F, 0}));
}

}  // namespace
}  // namespace lockstep::testing
