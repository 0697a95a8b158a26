// An optimizer of one's own: Lion. Groups, schedules, clipping, checkpoints, and ranks come with the base class.
#include <lockstep/lockstep.h>

#include "programs.h"

using namespace lockstep;

// program begins
struct Lion : Optimizer {
  struct Options {
    Rate lr = 1e-4;
    double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  } o;
  Lion(const ParameterGroups& p, const Options& o) : Optimizer(p, o.lr, o.weight_decay, {"exp_avg"}), o(o) {}
  Rule rule() const override { return {"lion", {{"beta1", o.beta1}, {"beta2", o.beta2}}}; }
  void update(ParameterUpdate& u) override {
    Tensor& m = u.state("exp_avg");
    u.weight -= u.lr * (sign(o.beta1 * m + (1 - o.beta1) * u.grad) + u.weight_decay * u.weight);
    m = o.beta2 * m + (1 - o.beta2) * u.grad;
  }
};
// program ends

void programs::own_optimizer(const std::filesystem::path&) {
  Linear net(3, 2);
  Lion lion(net.parameters(), {.lr = 0.01});
  const Tensor x = randn({8, 3}, {.seed = 1}), y = randn({8, 2}, {.seed = 2});
  const auto loss = [&] {
    const Tensor loss = mse_loss(net(x), y.to(net.devices()[0]));
    loss.backward();
    lion.clip_grad_norm(1);
    lion.step();
    return loss.item();
  };
  const float first = loss();
  for (int i = 0; i < 20; ++i) loss();
  check(loss() < first, "lion does not learn");
  const StateDict state = lion.state_dict();
  check(std::ranges::any_of(state, [](const auto& entry) { return entry.first == "exp_avg.weight"; }),
        "the state has no name");
}
