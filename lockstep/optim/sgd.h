// Stochastic gradient descent, with momentum.
//
//   Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
//   loss.backward();
//   sgd.step();
#pragma once

#include <span>

#include "lockstep/backend/update_rules.h"
#include "lockstep/optim/optimizer.h"

namespace LOCKSTEP_API lockstep {

// torch.optim.SGD with dampening 0. With the gradient g of a weight w, and a momentum buffer m that starts at 0:
//   g += weight_decay w;  m = momentum m + g;  w -= lr m
// With `nesterov`, w -= lr (g + momentum m) (Sutskever et al. 2013).
class Sgd : public Optimizer {
 public:
  Sgd(const ParameterGroups& parameters, SgdOptions options);
  Rule rule() const override;

 protected:
  void update(std::span<const Update<Array>> updates, const Array& scale, const Array& rates) override;

 private:
  SgdOptions options_;
};

}  // namespace lockstep
