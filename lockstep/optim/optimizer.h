// Optimizers: one step is, per device, one task over all of its parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/nn/parameter.h"
#include "lockstep/optim/loss_scaler.h"
#include "lockstep/optim/parameter_group.h"

namespace LOCKSTEP_API lockstep {

// backend/optimizer.h
struct UpdateRates;
struct SgdArgs;
struct AdamArgs;

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Sums the gradients of all shards and updates every replica. Parameters without a gradient stay as they are. The
  // gradients are used up: the next backward() starts anew.
  void step();
  // Forgets gradients, of a batch that shall not count, say.
  void zero_grad();

  // Before the next step: all gradients times min(1, max_norm / norm), with the norm over all of them. Returns the norm,
  // a scalar f64 tensor that is not waited for.
  Tensor clip_grad_norm(double max_norm);
  // Before the next step, after a backward() with the scaler's scales: the gradients without the scale, clipped to max_norm
  // (0: not). If one of them is not finite, the step leaves weights and state as they are, though it counts.
  void unscale(LossScaler& scaler, double max_norm = 0);

  // The rate of the options, for all groups without one of their own. Setting it, as schedules do, scales the rates of
  // all groups by the same factor.
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double lr);
  // The rate of one group, counted from 0. Setting it changes this group's proportion to the others; later changes of
  // all rates keep that proportion. Throws while the rate of the options is 0.
  double learning_rate(std::size_t group) const { return group_at(group).lr; }
  void set_learning_rate(std::size_t group, double lr);
  std::size_t group_count() const { return groups_.size(); }
  // "lr 0.001, weight_decay 0: 1.bias, 2.weight; ...": for recipes, since groups decide the bits, if only by the order
  // in which norms are summed. With the rates that the groups begin with. Empty for a plain list.
  std::string describe_groups() const;
  // Steps done, counting from 0. Keys of random operations depend on those of all optimizers together: see RandomState.
  std::int64_t steps() const { return steps_; }

  // What a checkpoint needs: named host tensors, "momentum.fc.1.weight". Waits.
  std::vector<std::pair<std::string, Tensor>> state_dict() const;
  // Strict, as for modules: an error changes nothing. The parameters' shapes have to be known.
  void load_state_dict(const std::vector<std::pair<std::string, Tensor>>& state, std::int64_t steps);

 protected:
  // state_names: at most two.
  Optimizer(const ParameterGroups& groups, double learning_rate, double weight_decay,
            std::vector<std::string> state_names);

  struct Item {
    Array weight, grad, state0, state1, present;
    std::size_t group;
  };
  // `step` counts from 1. `rates` is undefined, or has, for each group, what rates() is at each repetition of a recorded
  // step.
  virtual void update(std::span<const Item> items, const Array& scale, const Array& rates, std::int64_t step) = 0;
  virtual UpdateRates rates(std::int64_t step, std::size_t group) const = 0;
  double weight_decay(std::size_t group) const { return groups_[group].weight_decay; }

 private:
  struct Group {
    double lr, weight_decay;
    std::optional<double> own_lr;  // when the optimizer has initial_learning_rate_
  };
  struct Slot {
    Parameter parameter;
    std::size_t group;
    std::shared_ptr<void> claim;
    // [state][device]; made when the parameter is first updated.
    std::vector<std::vector<Array>> states;
  };
  void add_group(std::size_t number, const ParameterGroup& group, double weight_decay);
  const Group& group_at(std::size_t group) const;
  void make_states(Slot& slot) const;
  // Begins the next step, on the host.
  void advance();
  void write_rates(std::span<const Array> places) const;
  Device home(std::size_t slot) const;
  Array squared_norm(std::string_view what) const;
  Array scale_on(Device device) const;
  void add_random_steps(std::int64_t count) const;

  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  bool has_own_options_ = false;
  std::vector<std::string> state_names_;
  double initial_learning_rate_, learning_rate_;
  std::int64_t steps_ = 0;
  // Of clipping and loss scaling, for the next step: one for all devices, or for each.
  std::vector<Array> scales_;
};

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class Sgd : public Optimizer {
 public:
  Sgd(const ParameterGroups& parameters, SgdOptions options);

 protected:
  void update(std::span<const Item> items, const Array& scale, const Array& rates, std::int64_t step) override;
  UpdateRates rates(std::int64_t step, std::size_t group) const override;

 private:
  SgdArgs args(std::size_t group) const;
  SgdOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

class Adam : public Optimizer {
 public:
  Adam(const ParameterGroups& parameters, AdamOptions options) : Adam(parameters, options, false) {}

 protected:
  Adam(const ParameterGroups& parameters, AdamOptions options, bool decoupled);
  void update(std::span<const Item> items, const Array& scale, const Array& rates, std::int64_t step) override;
  UpdateRates rates(std::int64_t step, std::size_t group) const override;

 private:
  AdamArgs args(std::int64_t step, std::size_t group) const;
  AdamOptions options_;
  bool decoupled_;
};

// Weight decay applied to the weights, not to the gradients (Loshchilov and Hutter 2019).
class AdamW : public Adam {
 public:
  AdamW(const ParameterGroups& parameters, AdamOptions options) : Adam(parameters, options, true) {}
};

}  // namespace lockstep
