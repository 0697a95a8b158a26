// Optimizers of the program's own, which compute with tensors: the library scales, skips, and stores.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/nn/linear.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

// Chen et al. 2023.
struct Lion : Optimizer {
  Lion(const ParameterGroups& parameters, const Rate& lr, double weight_decay = 0)
      : Optimizer(parameters, lr, weight_decay, {"exp_avg"}) {}
  Rule rule() const override { return {"lion", {}}; }
  void update(ParameterUpdate& u) override {
    Tensor& m = u.state("exp_avg");
    u.weight -= u.lr * (sign(0.9 * m + 0.1 * u.grad) + u.weight_decay * u.weight);
    m = 0.99 * m + 0.01 * u.grad;
  }
};

// Sgd's formula, with its roundings. Changes its state in place.
struct OwnSgd : Optimizer {
  OwnSgd(const ParameterGroups& parameters, double lr, double momentum, double weight_decay)
      : Optimizer(parameters, lr, weight_decay, {"buffer"}), momentum(momentum) {}
  Rule rule() const override { return {"own sgd", {{"momentum", momentum}}}; }
  void update(ParameterUpdate& u) override {
    EXPECT_FALSE(grad_enabled());
    const Tensor m = u.state("buffer");
    m.copy_from(momentum * m + (u.grad + u.weight_decay * u.weight));
    u.weight -= u.lr * m;
  }
  const double momentum;
};

class OwnOptimizerTest : public ::testing::TestWithParam<int> {
 protected:
  using Train = std::function<void(Optimizer& optimizer, const Linear& net)>;

  // 8 samples over 4 shards.
  Tensor batch(const Tensor& x) {
    std::vector<Slot> slots;
    for (int s = 0; s < 4; ++s) {
      slots.push_back({s, runtime_.devices()[static_cast<std::size_t>(s) * runtime_.devices().size() / 4]});
    }
    return scatter(x, std::make_shared<Placement>(std::vector<std::int64_t>(4, 2), slots));
  }
  Tensor loss(Linear& net, std::uint64_t seed) {
    Random random(seed);
    const Tensor x = batch(random.floats({8, 3})), y = batch(random.floats({8, 2}));
    return mse_loss(net(x), y);
  }
  static Numbers at_home(const Parameter& p) { return values(p.data(p.devices()[0])); }
  // Every replica of the weights, and the state.
  std::vector<Numbers> all_of(const Linear& net, const Optimizer& optimizer) {
    std::vector<Numbers> all;
    for (const Parameter& p : net.parameters()) {
      for (Device d : p.devices()) all.push_back(values(p.data(d)));
    }
    for (const auto& [name, tensor] : optimizer.state_dict()) all.push_back(values(tensor.to(runtime_.devices()[0])));
    return all;
  }
  std::unique_ptr<Linear> net() {
    auto net = std::make_unique<Linear>(LinearOptions{.in_features = 3, .out_features = 2});
    net->initialize(Xavier{}, runtime_.devices());
    return net;
  }
  // A group of its own for the bias.
  static ParameterGroups groups(const Linear& net) {
    return {{.parameters = {net.weight}, .weight_decay = 0.1}, {.parameters = {net.bias}, .lr = 0.01}};
  }

  Runtime runtime_{{.cpu_devices = GetParam(), .threads_per_shard = 1}};
};

// With clipping, groups, a changed rate, and a loss scale that skips a step.
TEST_P(OwnOptimizerTest, SgdOfOnesOwnHasSgdsBits) {
  const auto a = net(), b = net();
  OwnSgd own(groups(*a), 0.1, 0.9, 0);
  Sgd sgd(groups(*b), {.lr = 0.1, .momentum = 0.9});
  LossScaler own_scaler(runtime_.devices(), {.initial_scale = 1024}),
      scaler(runtime_.devices(), {.initial_scale = 1024});
  for (std::uint64_t step = 0; step < 6; ++step) {
    const auto run = [&](Linear& net, Optimizer& optimizer, LossScaler& scaler) {
      if (step == 3) optimizer.set_learning_rate(0.05);
      if (step < 2) {
        loss(net, step).backward();
        if (step == 1) optimizer.clip_grad_norm(0.1);
      } else {
        (loss(net, step) * (step == 4 ? std::numeric_limits<double>::infinity() : 1.0))
            .backward({.scales = scaler.scales()});
        optimizer.unscale(scaler, 0.2);
      }
      optimizer.step();
    };
    run(*a, own, own_scaler);
    run(*b, sgd, scaler);
    EXPECT_EQ(at_home(a->weight), at_home(b->weight)) << step;
    EXPECT_EQ(at_home(a->bias), at_home(b->bias)) << step;
  }
  EXPECT_EQ(own.steps(), 6);
  EXPECT_EQ(own.state_dict()[0].second.to_vector<float>(), sgd.state_dict()[0].second.to_vector<float>());
}

TEST_P(OwnOptimizerTest, LionIsItsFormulaOnEveryReplica) {
  const auto lin = net();
  Lion lion(lin->parameters(), step_lr(0.1, 2, 0.5), 0.2);
  Numbers w = at_home(lin->weight), m(w.size(), 0);
  for (int step = 0; step < 5; ++step) {
    loss(*lin, static_cast<std::uint64_t>(step)).backward();
    const Numbers g = values(lin->weight.gradient());
    lion.step();
    const double lr = 0.1 * std::pow(0.5, step / 2);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double direction = 0.9 * m[i] + 0.1 * g[i];
      w[i] -= lr * ((direction > 0 ? 1 : direction < 0 ? -1 : 0) + 0.2 * w[i]);
      m[i] = 0.99 * m[i] + 0.01 * g[i];
    }
    EXPECT_EQ(lion.learning_rate(), lr);
  }
  for (Device d : lin->weight.devices()) EXPECT_LT(distance(values(lin->weight.data(d)), w), 1e-5);
}

TEST_P(OwnOptimizerTest, AStepOfAFailedBatchChangesNothing) {
  const auto lin = net();
  Lion lion(lin->parameters(), 0.01);
  loss(*lin, 1).backward();
  lion.step();
  const auto before = all_of(*lin, lion);
  const Tensor x = batch(Random(3).floats({8, 3}));
  std::vector<std::int64_t> labels(8, 1);
  labels[5] = 7;
  const Tensor bad = cross_entropy((*lin)(x), batch(Tensor::from(labels, {8})));
  bad.backward();
  lion.step();
  EXPECT_ERROR(bad.item(), "7");
  EXPECT_EQ(all_of(*lin, lion), before);
  EXPECT_EQ(lion.steps(), 1);
  loss(*lin, 2).backward();
  lion.step();
  EXPECT_NE(all_of(*lin, lion), before);
}

TEST_P(OwnOptimizerTest, AnUpdateThatThrowsChangesNothing) {
  struct Throws : Lion {
    using Lion::Lion;
    void update(ParameterUpdate& u) override {
      Lion::update(u);
      check(u.parameter.shape().dim() > 1, "no biases today");
    }
  };
  const auto lin = net();
  Throws lion(lin->parameters(), 0.01);
  const Numbers before = at_home(lin->weight);
  loss(*lin, 1).backward();
  EXPECT_ERROR(lion.step(), "no biases today");
  EXPECT_EQ(at_home(lin->weight), before);
  EXPECT_EQ(lion.steps(), 0);
}

TEST_P(OwnOptimizerTest, StatesAreSavedAndLoaded) {
  const auto a = net(), b = net();
  Lion lion(a->parameters(), 0.01), other(b->parameters(), 0.01);
  loss(*a, 1).backward();
  lion.step();
  for (std::size_t i = 0; i < 2; ++i) b->parameters()[i].set_data(a->parameters()[i].host_data());
  other.load_state_dict(lion.state_dict());
  for (const auto& [lin, optimizer] : {std::pair{a.get(), &lion}, {b.get(), &other}}) {
    loss(*lin, 2).backward();
    optimizer->step();
  }
  EXPECT_EQ(all_of(*b, other), all_of(*a, lion));
}

INSTANTIATE_TEST_SUITE_P(Devices, OwnOptimizerTest, ::testing::Values(1, 2));

class OwnUpdate : public Optimizer {
 public:
  using Function = std::function<void(OwnUpdate&)>;
  OwnUpdate(const Parameter& p, Function f) : Optimizer({p}, 0.1, 0, {"a", "b"}), f(std::move(f)) {}
  Rule rule() const override { return {"own", {}}; }
  void update(ParameterUpdate& update) override {
    u = &update;
    f(*this);
  }
  Tensor& weight() { return u->weight; }
  Tensor& state(const char* name) { return u->state(name); }
  const Tensor& keep(const char* name) { return u->keep(name); }
  Tensor& grad() { return u->grad; }

 private:
  ParameterUpdate* u = nullptr;
  Function f;
};

TEST(OwnUpdateTest, MistakesNameTheStateAndTheParameter) {
  const Runtime runtime({.cpu_devices = 1, .threads_per_shard = 1});
  const auto step = [&](const OwnUpdate::Function& f) {
    Parameter p(ParameterOptions{.shape = {2}});
    p.initialize("w", runtime.devices(), Constant{1}, 0);
    OwnUpdate own(p, f);
    sum(p * 3).backward();
    own.step();
    return values(p.data(runtime.devices()[0]));
  };
  EXPECT_EQ(step([](OwnUpdate& u) { u.weight() -= 0.5 * u.grad(); }), (Numbers{-0.5, -0.5}));
  EXPECT_EQ(step([](OwnUpdate& u) { u.weight().copy_from(u.weight() + u.keep("a")); }), (Numbers{1, 1}));
  EXPECT_ERROR(step([](OwnUpdate& u) { Tensor lost = u.state("b"), more = lost += 1; }),
               "optimizer own: update() asked for the state b of w and left it as it is");
  EXPECT_ERROR(step([](OwnUpdate& u) { u.keep("a").copy_from(u.grad()); }), "changed the state a of w");
  EXPECT_ERROR(step([](OwnUpdate& u) { u.grad().copy_from(u.weight()); }), "changed the gradient of w in place");
  EXPECT_ERROR(step([](OwnUpdate& u) { u.state("c"); }), "there is no state c");
  EXPECT_ERROR(step([](OwnUpdate& u) { u.weight() = sum(u.weight()); }), "the new weight of w is");
  struct Named : Optimizer {
    Named(const Parameter& p, std::vector<std::string> names) : Optimizer({p}, 0.1, 0, std::move(names)) {}
    Rule rule() const override { return {"named", {}}; }
  };
  const Parameter p(ParameterOptions{.shape = {2}});
  EXPECT_ERROR(Named(p, {"a", "a"}), "a state named \"a\"");
  EXPECT_ERROR(Named(p, {"step"}), "a state named \"step\"");
  EXPECT_ERROR(Named(p, {"a.b"}), "a state named \"a.b\"");
}

}  // namespace
}  // namespace lockstep::testing
