// How many gradients of a large weight wait in memory at a time.
#include <cmath>
#include <functional>

#include "lockstep/nn/linear.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

constexpr int kManyShards = 16;
constexpr std::int64_t kWidth = 512;

struct Peak {
  double weights = 0;  // bytes, in sizes of the weight
  std::vector<double> gradient;
};

// A pass over a layer whose activations are much smaller than its weight.
Peak peak(const std::function<Tensor(const Linear&, const Tensor& loss)>& with_penalty, int passes = 1) {
  Runtime runtime(small_devices(1));
  Linear net({.in_features = kWidth, .out_features = kWidth, .bias = false});
  net.initialize(Normal{0.1}, runtime.devices());
  Random random(1);
  const Tensor x =
      make_batch(random.floats({kManyShards, kWidth}), std::vector<std::int64_t>(kManyShards, 1), runtime.devices());
  for (int i = 0; i < passes; ++i) with_penalty(net, mean(square(net(x)))).backward();
  runtime.synchronize();
  const auto bytes = static_cast<double>(runtime.memory(runtime.devices()[0]).peak_used_bytes);
  return {bytes / (4 * kWidth * kWidth), values(net.weight.gradient())};
}

// log2(V) + 1 sums wait, one more is computed, and there is the weight itself and a copy or two.
TEST(GradientMemory, APenaltyOnTheWeightsKeepsFewGradients) {
  const Peak plain = peak([](const Linear&, const Tensor& loss) { return loss; });
  const Peak penalized =
      peak([](const Linear& net, const Tensor& loss) { return loss + sum(square(net.weight)) * 1e-4; });
  EXPECT_LT(plain.weights, std::log2(kManyShards) + 5);
  EXPECT_LT(penalized.weights, plain.weights + 5);
  EXPECT_NE(penalized.gradient, plain.gradient);
}

}  // namespace
}  // namespace lockstep::testing
