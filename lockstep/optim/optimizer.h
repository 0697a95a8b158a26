// The base of all optimizers, and groups of parameters with options of their own. One step is one task per device, over
// all parameters.
//
//   Sgd sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
//   loss.backward();
//   sgd.step();
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/nn/state_dict.h"
#include "lockstep/optim/schedule.h"

namespace LOCKSTEP_API lockstep {

// Values of options by the names of their members, such as {{"lr", 0.1}, {"momentum", 0.9}}. A bool is 0 or 1.
using OptimizerOptions = std::vector<std::pair<std::string, double>>;

// A group of parameters with its own options, as in PyTorch. Omitted options are the optimizer's.
struct ParameterGroup {
  std::vector<Parameter> parameters;
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  // Options of the update rule: {{"momentum", 0.5}}. Optimizers of your own take none.
  OptimizerOptions options = {};
};

// The parameters of an optimizer: a list, which is one group, or several groups. A transformer's biases and norms
// usually do not decay:
//
//   std::vector<Parameter> matrices, others;
//   for (const Parameter& p : net.parameters()) (p.shape().dim() > 1 ? matrices : others).push_back(p);
//   AdamW adamw({{.parameters = matrices}, {.parameters = others, .weight_decay = 0}}, {.weight_decay = 0.1});
class ParameterGroups {
 public:
  ParameterGroups() = default;
  ParameterGroups(std::vector<Parameter> parameters) { groups_.push_back({std::move(parameters)}); }
  ParameterGroups(std::initializer_list<Parameter> parameters) : ParameterGroups(std::vector(parameters)) {}
  ParameterGroups(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  ParameterGroups(std::initializer_list<ParameterGroup> groups) : groups_(groups) {}

  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }
  std::size_t size() const { return groups_.size(); }

 private:
  std::vector<ParameterGroup> groups_;
};

// Groups parameters by name: each parameter joins the group of the first prefix that its name begins with; all other
// parameters form a last group with the optimizer's options. Throws if no parameter is left for a prefix, and for a
// group that lists parameters itself.
//
//   Sgd sgd(groups_by_name(net, {{"fc.", {.lr = 1e-2}}}), {.lr = 1e-4, .momentum = 0.9});
ParameterGroups groups_by_name(const Module& net, std::vector<std::pair<std::string, ParameterGroup>> by_prefix);

class InUse;           // base/in_use.h
class LossScaler;      // optim/loss_scaler.h
class PendingUpdates;  // engine/pending_updates.h
class RandomState;     // runtime/random_state.h
class FusedRule;       // optim/fused_rule.h

// The base of all optimizers. An optimizer of your own computes a parameter's step with tensors:
//
//   struct Lion : Optimizer {
//     Lion(const ParameterGroups& parameters, Rate lr, double weight_decay = 0)
//         : Optimizer(parameters, lr, weight_decay, {"exp_avg"}) {}
//     Rule rule() const override { return {"lion", {}}; }  // and the options that decide the bits, for recipes
//     void update(ParameterUpdate& u) override {
//       Tensor& m = u.state("exp_avg");
//       u.weight -= u.lr * (sign(0.9 * m + 0.1 * u.grad) + u.weight_decay * u.weight);
//       m = 0.99 * m + 0.01 * u.grad;
//     }
//   };
//
// One thread at a time may use an optimizer; other threads get an error. An optimizer changes only its own parameters.
// backward() still computes and accumulates the gradients of all other parameters, as in PyTorch; ranks do not exchange
// them. Use freeze() for parameters that you leave out, because a frozen parameter has no gradient. Trainer freezes
// them while it trains.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // No copies: they would share the momentum and other states. Keep state_dict() instead.
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = delete;

  // Sums the gradients of all shards and updates every replica. Parameters without a gradient are not changed. If no
  // parameter has a gradient (the optimizer may have another model's), the step changes nothing, as in PyTorch, but
  // counts. Then clears the gradients, so no zero_grad() is needed. If it throws, for example because memory is short,
  // it has changed no parameter, and does not count.
  //
  // If the batch has failed (a label outside the classes, say), the step leaves all weights and states as they are. The
  // error is thrown where the loss is read or, failing that, where the weights are first read. A program may catch it.
  void step();
  // Drops the gradients, for example of a batch that should not count.
  void zero_grad();

  // In the next step, multiplies all gradients by min(1, max_norm / norm); `norm` is the norm of all gradients
  // together, after unscale() that of the unscaled gradients. Returns the norm, f64 [1]. Does not wait. Call it after
  // the last backward() of the step: another backward() throws until the gradients are used or dropped.
  Tensor clip_grad_norm(double max_norm);
  // Call it before the next step if backward() used the scaler's scales. Divides the gradients by the scale and clips
  // them to max_norm (0: no clipping). If any gradient is not finite, the step leaves weights and state unchanged but
  // still counts. Throws if the gradients are already unscaled or clipped.
  void unscale(LossScaler& scaler, double max_norm = 0);

  // The parameters of all groups, in order.
  std::vector<Parameter> parameters() const;
  // Replaces each gradient by f(gradient, parameter), for example to add noise or to scale a layer's. Skips parameters
  // without a gradient. f is as for Parameter::register_hook(), and gets the gradients as the next
  // step would use them: unscaled after unscale(), clipped after clip_grad_norm(). Under DistributedDataParallel, waits
  // for the sums, so that a failed batch's error is thrown here. Throws if no parameter has a gradient. If f throws,
  // nothing changes.
  //
  //   sgd.map_gradients([](const Tensor& g, const Parameter& p) { return p.name() == "0.weight" ? g * 0.1 : g; });
  void map_gradients(const std::function<Tensor(const Tensor& gradient, const Parameter& parameter)>& f);
  // Limits each element of the gradients to [-limit, limit]: torch.nn.utils.clip_grad_value_, as map_gradients() does.
  // With loss scaling, call it after unscale().
  void clip_grad_value(double limit);

  // The learning rate from the options, used by groups without their own; with a schedule, that of the latest step.
  // Setting it scales all groups' rates by the same factor; a number ends a schedule, and a schedule begins at steps().
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(const Rate& lr);
  // The schedule that steps follow; null if the rate is a number.
  const ScheduleOptions* schedule() const { return schedule_ ? &*schedule_ : nullptr; }
  // For schedules that own the rate, such as Trainer's: they do not change base_learning_rate(), which is the rate from
  // the options or the last set_learning_rate(). The next schedule starts there. Throws if the rate is a schedule.
  void set_scheduled_learning_rate(double lr);
  // Tells whether a schedule of that kind runs. A group rate that is set while it runs keeps its ratio to the scheduled
  // rate; one that is set at another time keeps its ratio to the base rate, with which the next run begins.
  void set_schedule_runs(bool runs) { schedule_runs_ = runs; }
  double base_learning_rate() const { return base_learning_rate_; }
  // The rate of one group, counted from 0. Setting it changes this group's ratio to the other groups; later changes of
  // all rates keep that ratio. Setting it throws while the optimizer's own rate is 0, which allows no ratio. It does
  // not throw after a schedule of Trainer that ended at 0, because the next run begins with the base rate.
  double learning_rate(std::size_t group) const { return group_at(group).lr; }
  void set_learning_rate(std::size_t group, double lr);
  std::size_t group_count() const { return groups_.size(); }

  // The options of a group as its next step uses them: lr, weight_decay, and those of the rule.
  OptimizerOptions options(std::size_t group = 0) const;
  // Changes some options of a group; the others, all states, the number of steps, and random draws stay. Does not wait.
  // Throws, and changes nothing, for a name that the rule does not have, and for a value that its constructor refuses.
  //
  //   sgd.set_options(0, {{"momentum", 0.8}, {"weight_decay", 0}});
  //
  // lr sets the rate as set_learning_rate(group, lr) does or, with a single group that follows the optimizer's rate, as
  // set_learning_rate(lr). If the optimizer's rate is 0, it becomes the largest given rate; the other groups stay at 0.
  // Throws for a rate above 0 while a running schedule is at 0. A state that the rule needs from now on starts as
  // zeros; a state that it no longer needs stays as it is until it is needed again. Changes take effect in the next
  // step; a RecordedStep is recorded anew.
  void set_options(std::size_t group, const OptimizerOptions& changed);
  // Changes options of all groups, in order: all groups change, or none.
  void set_options(std::span<const OptimizerOptions> changed);
  // Adds a group between two steps. Throws, and changes nothing, where the constructor would.
  void add_group(const ParameterGroup& group);

  // Describes the groups for recipes: "lr 0.001, weight_decay 0: 1.bias, 2.weight; ...", with the initial rates, and
  // with other options where they differ from group 0's; empty for a plain list. Groups decide the bits, because norms
  // are summed in their order.
  std::string describe_groups() const;
  // The rule for recipes: its name, and group 0's options that decide the bits, except the learning rates. Rarely used
  // options are listed only if they differ from the default.
  struct Rule {
    std::string name;
    std::vector<std::pair<std::string, double>> options;
    // Lists a rarely used option.
    void add_unless(double usual, std::string_view option, double value) {
      if (value != usual) options.emplace_back(option, value);
    }
  };
  virtual Rule rule() const = 0;
  // The number of steps so far. Keys of random operations depend on the steps of all optimizers together. A step that
  // was left out because its batch failed no longer counts once the error has been thrown. A step() after that error
  // does not count if the batch has left no gradient.
  std::int64_t steps() const;

  // The state that a checkpoint stores, as named host tensors: "momentum.fc.1.weight", "steps", and "learning_rates" of
  // the optimizer and its groups. Waits. Throws if two parameters have one name, as those of two models may.
  StateDict state_dict() const;
  // Strict, as for modules: an error changes nothing. The shapes of all parameters must be known. As in PyTorch, the
  // learning rates become the saved ones. `steps`: a number of steps other than the saved one, needed for the states of
  // older versions, which have neither "steps" nor rates.
  void load_state_dict(const StateDict& state, std::optional<std::int64_t> steps = {});
  // Throws where load_state_dict() would, but accepts any size for extents that are not known yet.
  void check_state_dict(const StateDict& state, std::optional<std::int64_t> steps = {}) const;

 protected:
  // One parameter in one step of an optimizer of your own. Its tensors are replicated over the parameter's devices.
  class ParameterUpdate {
   public:
    // Assign the new weight, with `=` or `-=`, or change it in place.
    Tensor weight;
    // The gradient as the step uses it: unscaled and clipped.
    Tensor grad;
    // The values of the parameter's group in this step.
    double lr = 0, weight_decay = 0;
    // The number of this step, from 1, over all steps of the optimizer.
    std::int64_t step = 0;
    Parameter parameter;

    // Returns the state of that name, with the weight's shape and type, which starts as zeros. Assign its new value to
    // the reference, or change it in place. It is an error to leave the state as it is, because an assignment to a copy
    // of the handle by mistake would do that; use keep(name) for a state that does not change.
    Tensor& state(std::string_view name);
    // Returns the state of that name, which this step does not change.
    const Tensor& keep(std::string_view name);

   private:
    friend class Optimizer;
    struct State;
    std::vector<std::shared_ptr<State>> states_;
  };

  // For an optimizer of your own. Throws for names that are empty, repeated, "step", or contain a point.
  Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
            std::vector<std::string> state_names);
  // Computes one parameter's step; called for each parameter that has a gradient in any process. The library does the
  // rest: it sums, unscales, and clips gradients, it calls update() without recording, and it leaves out steps as
  // described at step(). All of a step's new values are computed before the first one is stored. If update() throws,
  // step() throws the same, and nothing has changed. Use only the tensors and numbers of `u`, so that all processes
  // compute the same. A RecordedStep describes each step of such an optimizer, because it computes with host numbers.
  virtual void update(ParameterUpdate& u);

  // For the library's own rules.
  Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
            std::shared_ptr<const FusedRule> rule);
  // The rule of group 0.
  const FusedRule& fused_rule() const { return *groups_[0].rule; }
  // The weight decay of groups without their own.
  double weight_decay() const;

  // Throws unless the value is finite and at least 0.
  static void check_at_least_zero(std::string_view what, double value);

 private:
  struct Group {
    double lr, weight_decay;
    std::optional<double> own_lr;  // while the optimizer's rate is reference_rate()
    bool own_weight_decay = false;
    std::shared_ptr<const FusedRule> rule = {};  // null: update()
  };
  struct Slot {
    Parameter parameter;
    std::size_t group;
    std::shared_ptr<void> claim;
    // [state][device]; a state is made when the parameter is first updated with it.
    std::vector<std::vector<Array>> states;
    // By device: the number of steps in which the parameter had a gradient, i64 [1]. It is in memory because a rank
    // does not know on the host whether the others have a gradient.
    std::vector<Array> steps;
  };
  std::vector<Resource> losses() const;
  std::uint64_t hook_changes() const;  // of all gradients
  // The last part of a step, which runs after everything that can fail.
  using Commit = std::function<void(std::span<const Resource> needed, Resource* first_writes)>;
  Commit describe_fused(std::span<const ReducedGradient> gradients, std::span<const Device> devices,
                        std::span<const Array> rates);
  // Adds what the new values need to `needed`.
  Commit describe_own(std::span<const ReducedGradient> gradients, std::span<const Device> devices,
                      std::vector<Resource>& needed);
  ParameterUpdate make_update(std::size_t slot, const ReducedGradient& gradient) const;
  void check_update(const ParameterUpdate& u) const;
  void follow_schedule();
  struct SlotState;
  struct LoadedState;
  Optimizer(const ParameterGroups& groups, const Rate& learning_rate, double weight_decay,
            std::shared_ptr<const FusedRule> rule, std::vector<std::string> state_names);
  // Appends a group without its own learning rate.
  void append_group(const ParameterGroup& group);
  const Group& group_at(std::size_t group) const;
  bool is_used(std::size_t state, const FusedRule* rule) const;
  bool has_states(const Slot& slot) const;
  // Makes the states that the rule uses, and the number of steps, if it has none yet.
  void make_states(Slot& slot, const FusedRule* rule) const;
  std::vector<Array> new_state(const Parameter& p) const;
  std::vector<Array> new_count(const Parameter& p, std::int64_t steps) const;
  // The rate to which a group rate that is set now keeps its ratio: the base rate, or the scheduled rate in a schedule.
  double rate_beside_groups() const;
  void check_rates_of_groups(std::span<const std::optional<double>> given) const;
  void set_rates_of_groups(std::span<const std::optional<double>> given);
  // Places the models, so that the parameters have names and devices.
  void place() const;
  // Begins the next step, on the host.
  void advance();
  void write_rates(std::span<const Array> places) const;
  Device home(std::size_t slot) const;
  void check_any(std::string_view what, std::span<const Array> gradients) const;
  void check_used_by_other(std::span<const ReducedGradient> gradients) const;
  void forget_scales();
  Array squared_norm(std::string_view what) const;
  // Makes the next step multiply all gradients by one of these factors, f64 [1], which are on different devices.
  void set_scales(std::vector<Array> scales);
  void drop_failed_scales();
  // Drops the scales if all present gradients are newer than the scales. Throws if only some are newer: the step would
  // multiply these by scales that were computed without them.
  void check_scales(std::string_view what);
  Array scale_on(Device device) const;
  std::set<RandomState*> random_states() const;
  void add_random_steps(std::int64_t count) const;
  void scale_rates(double lr);
  // The initial rate, or 1 if that is 0, because no rate has a ratio to 0.
  double reference_rate() const { return initial_learning_rate_ > 0 ? initial_learning_rate_ : 1; }
  void check_names() const;
  Tensor rates() const;
  void check_rates(const Tensor& rates) const;
  void set_rates(const Tensor& rates);
  LoadedState match(const StateDict& state, std::optional<std::int64_t> steps) const;

  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  bool has_own_options_ = false;
  std::vector<std::string> state_names_;         // all that the rule may have
  const std::shared_ptr<const FusedRule> rule_;  // of groups without options of their own; null: update()
  const double weight_decay_;                    // of groups without their own
  std::uint64_t changes_ = 0;                    // number of changes of options other than rates, and of groups
  std::optional<ScheduleOptions> schedule_;
  bool schedule_runs_ = false;  // of Trainer
  double initial_learning_rate_, base_learning_rate_, learning_rate_;
  mutable std::int64_t steps_ = 0;
  std::shared_ptr<PendingUpdates> updates_;  // the updates that steps_ counts
  // Factors of clipping and loss scaling for the next step: one for all devices, or one for each.
  std::vector<Array> scales_;
  std::uint64_t reports_ = 0;  // Engine::reports() when the factors were last good
  // The token by which the gradients know the scales; see ParameterGradient::set_scale(). Null once map_gradients() has
  // applied the scales, which then say only whether the step is left out.
  std::shared_ptr<const void> scale_;
  std::shared_ptr<InUse> use_;
};

}  // namespace lockstep
