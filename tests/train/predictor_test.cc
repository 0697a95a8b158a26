#include "lockstep/train/predictor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <thread>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/attention.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/module_of.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/timeline.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"
#include "tests/temporary_folder.h"

namespace lockstep::testing {
namespace {

// A net with everything that training and evaluation compute differently, and of which no size is known.
struct PredictedNet : Module {
  Conv2d& conv = make<Conv2d>("conv", {.out_channels = 4, .kernel_size = 3, .padding = 1});
  BatchNorm2d& norm = make<BatchNorm2d>("norm");
  Dropout& dropout = make<Dropout>("dropout", 0.5);
  Linear& out = make<Linear>("out", {.out_features = 3});
  Tensor forward(const Tensor& x) override { return out(flatten(dropout(relu(norm(conv(x)))), 1)); }
};

struct TwoInputs : Module {
  Linear& a = make<Linear>("a", {.in_features = 4, .out_features = 2});
  std::pair<Tensor, Tensor> forward(const Tensor& x, const Tensor& y) const { return {a(x) + a(y), a(x) - a(y)}; }
};

class PredictorTest : public ::testing::Test {
 protected:
  static Tensor image(std::uint64_t seed) { return Tensor(Random(seed).floats({1, 2, 6, 6})); }
  std::shared_ptr<PredictedNet> net(double weight) {
    auto made = std::make_shared<PredictedNet>();
    made->initialize(Uniform(weight), runtime_.devices());
    const NoGradGuard no_grad;
    (*made)(image(1).to(device_));  // running statistics
    return made;
  }
  std::vector<float> evaluated(PredictedNet& model, const Tensor& x) {
    const NoGradGuard no_grad;
    const EvalGuard evaluation(model);
    return model(x.to(device_)).to_vector<float>();
  }

  Runtime runtime_;
  const Device device_ = runtime_.devices()[0];
  const TemporaryFolder folder_;
};

TEST_F(PredictorTest, ComputesAsInEvaluation) {
  const auto model = net(0.5);
  const std::vector<float> expected = evaluated(*model, image(7));
  const Predictor predict(*model);
  const Tensor on_host = predict(image(7)), on_device = predict(image(7).to(device_));
  EXPECT_TRUE(on_host.device().is_host());
  EXPECT_EQ(on_device.device(), device_);
  EXPECT_EQ(on_host.to_vector<float>(), expected);
  EXPECT_EQ(on_device.to_vector<float>(), expected);
  EXPECT_FALSE(on_device.requires_grad());
  EXPECT_EQ((on_device + on_device)->array().shard(), -1);
}

// Eight threads predict while one exchanges the weights: each result is that of one of the two files.
TEST_F(PredictorTest, ThreadsPredictWhileWeightsChange) {
  constexpr int kThreads = 8, kImages = 4, kCalls = 25;
  std::vector<std::vector<float>> expected[2];
  const std::string files[] = {(folder_ / "a.safetensors").string(), (folder_ / "b.safetensors").string()};
  for (int f = 0; f < 2; ++f) {
    const auto model = net(f == 0 ? 0.5 : 0.9);
    save_weights(files[f], *model);
    for (int i = 0; i < kImages; ++i) expected[f].push_back(evaluated(*model, image(static_cast<std::uint64_t>(i))));
  }
  ASSERT_NE(expected[0], expected[1]);
  const Predictor predict(net(0.1), files[0]);
  std::atomic<int> wrong = 0, of_b = 0, running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int call = 0; call < kCalls; ++call) {
        const auto i = static_cast<std::size_t>((t + call) % kImages);
        const Tensor x = image(i);
        const std::vector<float> y = predict(t % 2 ? x : x.to(device_)).to_vector<float>();
        if (y == expected[1][i]) ++of_b;
        if (y != expected[0][i] && y != expected[1][i]) ++wrong;
      }
      --running;
    });
  }
  for (int load = 1; running > 0; ++load) predict.load(files[load % 2]);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  predict.load(files[1]);
  EXPECT_EQ(predict(image(0)).to_vector<float>(), expected[1][0]);
}

TEST_F(PredictorTest, NeedsNoInitialization) {
  const auto model = net(0.5);
  const std::vector<float> expected = evaluated(*model, image(3));
  save_weights(folder_ / "weights", *model);
  const Predictor predict(std::make_unique<PredictedNet>(), folder_ / "weights");
  EXPECT_EQ(predict(image(3)).to_vector<float>(), expected);
  EXPECT_ERROR(Predictor(std::make_unique<PredictedNet>(), folder_ / "none"), "none");
}

TEST_F(PredictorTest, AFileThatDoesNotFitChangesNothing) {
  const auto model = net(0.5);
  const std::vector<float> expected = evaluated(*model, image(3));
  const Predictor predict(*model);
  EXPECT_ERROR(predict.load(folder_ / "none"), "none");
  Linear other({.in_features = 2, .out_features = 2});
  other.initialize(Constant{1}, runtime_.devices());
  save_weights(folder_ / "other", other);
  EXPECT_ERROR(predict.load(folder_ / "other"), "is missing");
  EXPECT_EQ(predict(image(3)).to_vector<float>(), expected);
}

TEST_F(PredictorTest, TheModelIsNotTrained) {
  const auto model = net(0.5);
  save_weights(folder_ / "weights", *model);
  Sgd sgd(model->parameters(), {.lr = 0.1});
  const auto train = [&] {
    sum((*model)(image(1).to(device_))).backward();
    sgd.step();
  };
  {
    const Predictor predict(*model);
    const std::vector<float> before = predict(image(2)).to_vector<float>();
    EXPECT_ERROR(model->train(), "while an EvalGuard holds it");
    EXPECT_ERROR(train(), "while a Predictor has the model");
    EXPECT_ERROR(load_weights(folder_ / "weights", *model), "while a Predictor has the model");
    EXPECT_ERROR(Predictor{*model}, "another Predictor has");
    EXPECT_EQ(predict(image(2)).to_vector<float>(), before);
    predict.load(folder_ / "weights");
    EXPECT_ERROR(load_weights(folder_ / "weights", *model), "while a Predictor has the model");
  }
  model->train();
  sgd.zero_grad();
  train();
  load_weights(folder_ / "weights", *model);
}

// The first call settles the shapes, in several threads at once, too.
TEST_F(PredictorTest, SettlesShapes) {
  auto model = std::make_unique<PredictedNet>();
  model->initialize(Uniform(0.3), runtime_.devices());
  PredictedNet& lazy = *model;
  const Predictor predict(std::move(model));
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (auto& result : results) threads.emplace_back([&] { result = predict(image(5)).to_vector<float>(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_ERROR(lazy.out.weight.set_data(lazy.out.weight.host_data()), "while a Predictor has the model");
}

TEST_F(PredictorTest, SeveralInputsAndResults) {
  TwoInputs model;
  model.initialize(Uniform(0.5), runtime_.devices());
  const Tensor x = Tensor(Random(1).floats({3, 4})), y = Tensor(Random(2).floats({3, 4}));
  const NoGradGuard no_grad;
  const auto [sum, difference] = model.forward(x.to(device_), y.to(device_));
  const Predictor predict(model);
  const auto [a, b] = predict(x, y);
  EXPECT_TRUE(a.device().is_host());
  EXPECT_EQ(a.to_vector<float>(), sum.to_vector<float>());
  EXPECT_EQ(b.to_vector<float>(), difference.to_vector<float>());
  const auto [c, d] = predict(x.to(device_), y);
  EXPECT_EQ(c.device(), device_);
  EXPECT_EQ(d.to_vector<float>(), difference.to_vector<float>());
}

TEST_F(PredictorTest, AnErrorBelongsToItsCall) {
  const auto model = net(0.5);
  const std::vector<float> expected = evaluated(*model, image(3));
  const Predictor predict(*model);
  EXPECT_ERROR(predict(Tensor(Random(1).floats({1, 5, 6, 6}))), "conv2d");
  EXPECT_EQ(predict(image(3)).to_vector<float>(), expected);
  Flatten none;
  EXPECT_ERROR(Predictor{none}, "predictor: Flatten has no parameters");
}

// A thread that waits for its result computes it, unless a timeline must show it.
TEST_F(PredictorTest, TheCallerComputesWhatItWaitsFor) {
  const auto model = net(0.5);
  const std::vector<float> expected = evaluated(*model, image(3));
  const Predictor predict(*model);
  const Engine& engine = runtime_.engine();
  for (int i = 0; i < 2; ++i) predict(image(3));  // the weights are prepared
  std::int64_t pushed = engine.counters().pushed;
  EXPECT_EQ(predict(image(3)).to_vector<float>(), expected);
  EXPECT_EQ(engine.counters().pushed, pushed);
  {
    const Timeline timeline(runtime_);
    EXPECT_EQ(predict(image(3)).to_vector<float>(), expected);
  }
  EXPECT_GT(engine.counters().pushed, pushed);
  pushed = engine.counters().pushed;
  EXPECT_EQ(predict(image(3).to(device_)).to_vector<float>(), expected);
  EXPECT_GT(engine.counters().pushed, pushed);
}

// Calls at the same time are computed on different devices.
TEST_F(PredictorTest, ComputesOnAllDevicesOfTheModel) {
  Runtime two({.cpu_devices = 2, .cores_per_device = 1});
  Linear model({.in_features = 2, .out_features = 2});
  model.initialize(Constant{1}, two.devices());
  const Predictor predict(model);
  for (Device device : two.devices()) {
    EXPECT_EQ(predict(Tensor::from<float>({1, 2}, {1, 2}).to(device)).device(), device);
  }
  EXPECT_ERROR(predict(Tensor::from<float>({1, 2}, {1, 2}).to(device_)), "expected it in host memory or on a device");
}

// A net that waits in its first pass until the test lets it go, and remembers the samples of each.
struct SlowNet : Module {
  Linear& out = make<Linear>("out", 4, 2);
  std::atomic<bool> waits = true;
  std::latch started{1}, go{1};
  std::mutex mutex;
  std::vector<std::int64_t> passes;
  Tensor forward(const Tensor& x) override {
    {
      const std::lock_guard lock(mutex);
      passes.push_back(x.size(0));
    }
    if (waits.exchange(false)) {
      started.count_down();
      go.wait();
    }
    return out(x);
  }
};

constexpr PredictorOptions kPatient{.max_batch = 3, .wait = std::chrono::hours(1)};

class JoiningTest : public PredictorTest {
 protected:
  static Tensor row(std::uint64_t seed, std::int64_t features = 4) {
    return Tensor(Random(seed).floats({1, features}));
  }
  // Begins a call that computes until the net may go on.
  void begin(const Predictor<SlowNet>& predict, SlowNet& net) {
    threads_.emplace_back([&] { predict(row(0)); });
    net.started.wait();
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::vector<std::thread> threads_;
};

// Three calls wait while a fourth one is computed, and become one pass when the batch is full.
TEST_F(JoiningTest, CallsBesideAPassAreJoined) {
  SlowNet net;
  const Predictor predict(net, kPatient);
  begin(predict, net);
  std::vector<std::vector<float>> results(3);
  for (std::size_t i = 0; i < 3; ++i)
    threads_.emplace_back([&, i] { results[i] = predict(row(i)).to_vector<float>(); });
  for (std::size_t i = 1; i < 4; ++i) threads_[i].join();  // although the first one does not end
  threads_.resize(1);
  net.go.count_down();
  join();
  EXPECT_EQ(net.passes, (std::vector<std::int64_t>{1, 3, 1}));  // and one alone, which has to be equal
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(predict(row(i)).to_vector<float>(), results[i]);
  EXPECT_EQ(net.passes.size(), 6u);  // a call alone waits for nobody
}

// A batch that is not full goes on when the pass before it ends.
TEST_F(JoiningTest, ABatchNeedNotBeFull) {
  SlowNet net;
  const Predictor predict(net, kPatient);
  begin(predict, net);
  threads_.emplace_back([&] { predict(row(1)); });
  threads_.emplace_back([&] { predict(Tensor(Random(1).floats({2, 4}))); });  // other shape
  predict(row(2).to(device_));                                                // on a device: never waits
  net.go.count_down();
  join();
  EXPECT_EQ(net.passes.size(), 4u);
}

TEST_F(JoiningTest, WaitingIsForCallsThatJoin) {
  SlowNet net;
  EXPECT_ERROR(Predictor(net, {.wait = std::chrono::milliseconds(5)}), "predictor: wait is set with max_batch 1");
}

TEST_F(JoiningTest, NobodyWaitsLonger) {
  SlowNet net;
  const Predictor predict(net, {.max_batch = 3, .wait = std::chrono::milliseconds(1)});
  begin(predict, net);
  predict(row(1));  // while the first call computes
  EXPECT_EQ(net.passes, (std::vector<std::int64_t>{1, 1}));
  net.go.count_down();
  join();
}

// An error of a joined pass reaches the call that it belongs to.
TEST_F(JoiningTest, AnErrorBelongsToItsCall) {
  struct Ids : Module {
    SlowNet& slow = make<SlowNet>("slow");
    Embedding& table = make<Embedding>("table", 8, 3);
    Tensor forward(const Tensor& ids) override {
      slow(zeros({ids.size(0), 4}));
      return table(ids);
    }
  } net;
  const Predictor predict(net, kPatient);
  const auto ids = [](std::int64_t id) { return Tensor::from(std::vector{id, id}, {1, 2}); };
  threads_.emplace_back([&] { predict(ids(0)); });
  net.slow.started.wait();
  std::vector<std::vector<float>> results(3);
  std::atomic<int> errors = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    threads_.emplace_back([&, i] {
      try {
        results[i] = predict(ids(i == 1 ? 99 : 5)).to_vector<float>();
      } catch (const Error&) {
        errors += i == 1 ? 1 : 100;
      }
    });
  }
  for (std::size_t i = 1; i < 4; ++i) threads_[i].join();
  threads_.resize(1);
  net.slow.go.count_down();
  join();
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(results[0], predict(ids(5)).to_vector<float>());
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(net.slow.passes[1], 3);
}

TEST_F(JoiningTest, ItsEndWaitsForCalls) {
  SlowNet net;
  auto predict = std::make_unique<Predictor<SlowNet>>(net, kPatient);
  begin(*predict, net);
  threads_.emplace_back([&] { predict.reset(); });
  std::this_thread::yield();
  net.go.count_down();
  join();
  net.train();
}

// Of each kind of layer, the bits of four calls together and of each alone. The choice of algorithm for the
// convolutions, and the partial sums of the mean, depend on the size of a batch.
TEST_F(JoiningTest, HasTheBitsOfSeparateCalls) {
  struct Net : ModuleOf<Net> {
    SlowNet& slow = make<SlowNet>("slow");
    Conv2d& stem = make<Conv2d>("stem", 3, 64, 3, {.padding = 1});
    BatchNorm2d& norm = make<BatchNorm2d>("norm", 64);
    Conv2d& conv = make<Conv2d>("conv", 64, 64, 3, {.padding = 1});
    ConvTranspose2d& up = make<ConvTranspose2d>("up", 64, 64, 3, {.padding = 1});
    LSTM& lstm = make<LSTM>("lstm", 64, 48, RecurrentOptions{.batch_first = true});
    MultiheadAttention& attention = make<MultiheadAttention>("attention", 48, 3, {.batch_first = true});
    LayerNorm& last = make<LayerNorm>("last", 48);
    Linear& out = make<Linear>("out", 48, 300);
    std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& x, const Tensor& scale) {
      slow(zeros({x.size(0), 4}));
      const Tensor y = up(relu(conv(relu(norm(stem(x)))))) * unsqueeze(scale, -1);
      const Tensor rows = permute(flatten(max_pool2d(y), 2), {0, 2, 1});
      const Tensor seen = last(attention(lstm(rows).output));
      return {softmax(out(seen), 2), {permute(seen, {1, 0, 2}), mean(repeat(y, {1, 1, 4, 4}), {2, 3}), y}};
    }
  } net;
  net.initialize(Xavier{}, runtime_.devices());
  constexpr std::size_t kCalls = 4;
  const auto predicted = [](const Predictor<Net>& predict, std::size_t i) {
    const auto [first, rest] = predict(Tensor(Random(i).floats({2, 3, 8, 8})), Tensor(Random(i + 9).floats({2, 1, 1})));
    std::vector<std::vector<float>> all{first.to_vector<float>()};
    for (const Tensor& t : rest) all.push_back(t.to_vector<float>());
    return all;
  };
  std::vector<std::vector<std::vector<float>>> expected, found(kCalls);
  net.slow.waits = false;
  {
    const Predictor predict(net);
    for (std::size_t i = 0; i < kCalls; ++i) expected.push_back(predicted(predict, i));
  }
  net.slow.waits = true;
  net.slow.passes.clear();
  const Predictor predict(net, {.max_batch = 2 * kCalls, .wait = std::chrono::hours(1)});
  threads_.emplace_back([&] { predicted(predict, 0); });
  net.slow.started.wait();
  for (std::size_t i = 0; i < kCalls; ++i) threads_.emplace_back([&, i] { found[i] = predicted(predict, i); });
  for (std::size_t i = 1; i <= kCalls; ++i) threads_[i].join();
  threads_.resize(1);
  net.slow.go.count_down();
  join();
  EXPECT_EQ(net.slow.passes, (std::vector<std::int64_t>{2, 2 * kCalls, 2}));
  for (std::size_t i = 0; i < kCalls; ++i) {
    for (std::size_t k = 0; k < expected[i].size(); ++k) EXPECT_EQ(found[i][k], expected[i][k]) << i << " " << k;
  }
}

TEST_F(JoiningTest, WhatCannotBeCutIsAnError) {
  EXPECT_ERROR(Predictor(*net(0.5), {.max_batch = 0}), "predictor: max_batch 0");
  struct Mean : Module {
    Linear& out = make<Linear>("out", 4, 2);
    Tensor forward(const Tensor& x) override { return mean(out(x), 0); }
  } mixing;
  const Predictor mixed(mixing, {.max_batch = 2});
  EXPECT_ERROR(mixed(row(1)), "expected samples on one of its axes");
  LSTM lstm(4, 2);  // time is on axis 0
  const Predictor in_time(lstm, {.max_batch = 2});
  EXPECT_ERROR(in_time(Tensor(Random(1).floats({3, 1, 4}))), "samples of");
  TwoInputs two;
  const Predictor both(two, {.max_batch = 2});
  EXPECT_ERROR(both(row(1), Tensor(Random(1).floats({2, 4}))), "expected as many samples");
}

// A call never sees the samples of others, whatever the model computes on the way.
TEST_F(JoiningTest, SamplesOfCallsDoNotMix) {
  struct Mixing : Module {
    explicit Mixing(bool norm) : by_norm(norm) {}
    SlowNet& slow = make<SlowNet>("slow");
    BatchNorm2d& norm = make<BatchNorm2d>("norm", 2, BatchNormLayerOptions{.track_running_stats = false});
    bool by_norm;
    Tensor forward(const Tensor& x) override {
      const Tensor y = slow(x);
      return by_norm ? flatten(norm(y.reshape({-1, 2, 1, 1}))) : y - mean(y, 0, true);
    }
  };
  for (const bool by_norm : {false, true}) {
    Mixing net(by_norm);
    const Predictor predict(net, {.max_batch = 6, .wait = std::chrono::hours(1)});
    const auto rows = [](std::uint64_t seed) { return Tensor(Random(seed).floats({2, 4})); };
    threads_.emplace_back([&] { predict(rows(0)); });
    net.slow.started.wait();
    std::vector<std::vector<float>> results(3);
    for (std::size_t i = 0; i < 3; ++i) {
      threads_.emplace_back([&, i] { results[i] = predict(rows(i)).to_vector<float>(); });
    }
    for (std::size_t i = 1; i < 4; ++i) threads_[i].join();
    threads_.resize(1);
    net.slow.go.count_down();
    join();
    EXPECT_EQ(net.slow.passes[1], 6);  // joined, and then one by one
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(predict(rows(i)).to_vector<float>(), results[i]) << by_norm << i;
  }
}

// The number of rows is no operation, so its results are compared.
TEST_F(JoiningTest, AModelMustNotComputeWithTheNumberOfRows) {
  struct ByRows : Module {
    SlowNet& slow = make<SlowNet>("slow");
    Tensor forward(const Tensor& x) override { return slow(x) / static_cast<double>(x.size(0)); }
  } net;
  net.initialize(Constant{1}, std::vector{device_});
  const Predictor predict(net, kPatient);
  threads_.emplace_back([&] { predict(row(0)); });
  net.slow.started.wait();
  std::atomic<int> errors = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    threads_.emplace_back([&, i] {
      try {
        predict(row(i));
      } catch (const Error& error) {
        errors +=
            std::string_view(error.what()).find("computes with the number of rows") != std::string::npos ? 1 : 100;
      }
    });
  }
  for (std::size_t i = 1; i < 4; ++i) threads_[i].join();
  threads_.resize(1);
  net.slow.go.count_down();
  join();
  EXPECT_EQ(errors, 3);
  EXPECT_ERROR(predict(row(1)), "predictor: the results of joined calls are others than those of separate ones");
}

// Each joined pass has one file's weights.
TEST_F(JoiningTest, ThreadsPredictWhileWeightsChange) {
  constexpr std::size_t kThreads = 6;
  const std::string files[] = {(folder_ / "a.safetensors").string(), (folder_ / "b.safetensors").string()};
  std::vector<float> expected[2][kThreads];
  for (std::size_t f = 0; f < 2; ++f) {
    const auto model = net(f == 0 ? 0.5 : 0.9);
    save_weights(files[f], *model);
    for (std::size_t i = 0; i < kThreads; ++i) expected[f][i] = evaluated(*model, image(i));
  }
  const Predictor predict(net(0.1), files[0], {.max_batch = 4});
  std::atomic<int> wrong = 0, running = kThreads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back([&, i] {
      for (int call = 0; call < 40; ++call) {
        const std::vector<float> y = predict(image(i)).to_vector<float>();
        if (y != expected[0][i] && y != expected[1][i]) ++wrong;
      }
      --running;
    });
  }
  for (int load = 1; running > 0; ++load) predict.load(files[load % 2]);
  join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace lockstep::testing
