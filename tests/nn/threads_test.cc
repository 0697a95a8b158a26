// What several threads may do with one model, and what they may not.
#include <thread>

#include "lockstep/autograd/function.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/linear.h"
#include "tests/nn/nn_testing.h"

namespace lockstep::testing {
namespace {

struct SharedNet : Module {
  Linear& hidden = make<Linear>("hidden", {.out_features = 16});
  BatchNorm1d& norm = make<BatchNorm1d>("norm");
  Dropout& dropout = make<Dropout>("dropout", 0.5);
  Linear& out = make<Linear>("out", {.out_features = 3});
  Tensor forward(const Tensor& x) override { return out(dropout(relu(norm(hidden(x))))); }
};

// The first pass settles the shapes; whichever thread makes it, all get the same bits.
TEST(Threads, EvaluateOneModel) {
  constexpr int kThreads = 8;
  Runtime runtime;
  SharedNet net;
  net.initialize(Uniform(0.5), runtime.devices());
  std::vector<std::vector<float>> results(kThreads);
  {
    // The mode belongs to the model, the switch of gradients to a thread.
    const EvalGuard evaluation(net);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const NoGradGuard no_grad;
        const EvalGuard another(net);
        const Tensor x = Tensor(Random(1).floats({5, 7})).to(runtime.devices()[0]);
        for (int call = 0; call < 20; ++call) {
          const std::vector<float> y = net(x).to_vector<float>();
          if (call > 0) {
            EXPECT_EQ(y, results[static_cast<std::size_t>(t)]);
          }
          results[static_cast<std::size_t>(t)] = y;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_TRUE(net.training());
}

std::function<void()> during_backward;
struct Callback : Function {
  Tensor forward(const Tensor& x) { return x * 1; }
  Tensor backward(const Tensor& dy) {
    during_backward();
    return dy;
  }
};

// Two passes at once would lose gradients of the parameters that both reach.
TEST(Threads, BackwardOfTwoThreadsMustNotMeet) {
  Runtime runtime(small_devices(1));
  Linear net({.in_features = 2, .out_features = 1}), other({.in_features = 2, .out_features = 1});
  for (Linear* model : {&net, &other}) model->initialize(Constant{1}, runtime.devices());
  const Tensor x = Tensor::from<float>({1, 2}, {1, 2}).to(runtime.devices()[0]);
  const auto in_thread = [](const auto& f) { std::thread(f).join(); };
  during_backward = [&] {
    in_thread([&] {
      EXPECT_ERROR(sum(net(x)).backward(), "backward: a parameter or leaf of this loss: another thread is using it");
      sum(other(x)).backward();
    });
  };
  sum(apply<Callback>(net(x))).backward();
  EXPECT_EQ(values(net.weight.gradient()), (std::vector<double>{1, 2}));
  EXPECT_EQ(values(other.weight.gradient()), (std::vector<double>{1, 2}));
  // The error has left nothing behind.
  in_thread([&] { sum(net(x)).backward(); });
  EXPECT_EQ(values(net.weight.gradient()), (std::vector<double>{2, 4}));
  during_backward = nullptr;
}

}  // namespace
}  // namespace lockstep::testing
