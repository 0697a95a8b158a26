#include "lockstep/backend/optimizer.h"

#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"

namespace lockstep {
namespace {

// Updates the elements of a parameter that has this many states.
template <int kStates, typename T, typename Step>
void update_elements(const KernelContext& ctx, const Step& step, const Update<View>& u, T scale) {
  const auto state = [&](std::size_t k) { return u.states[k] ? u.states[k].as<T>() : nullptr; };
  cpu::parallel_element_loop<T>(ctx, u.weight.numel(),
                                [step, scale, weight = u.weight.as<T>(), grad = u.grad.as<T>(), first = state(0),
                                 second = state(1), third = state(2)](std::int64_t i) {
                                  T w = weight[i], a = 0, b = 0, c = 0;
                                  if constexpr (kStates > 0) a = first[i];
                                  if constexpr (kStates > 1) b = second[i];
                                  if constexpr (kStates > 2) c = third[i];
                                  step(w, scale * grad[i], a, b, c);
                                  weight[i] = w;
                                  if constexpr (kStates > 0) first[i] = a;
                                  if constexpr (kStates > 1) second[i] = b;
                                  if constexpr (kStates > 2) third[i] = c;
                                });
}

template <typename T, int kStates, typename Rule>
void update_as(const KernelContext& ctx, const Rule& rule, double rate, std::int64_t step, const Update<View>& u,
               double scale) {
  if constexpr (kStates < Rule::kMostStates) {
    if (u.states[kStates]) return update_as<T, kStates + 1>(ctx, rule, rate, step, u, scale);
  }
  update_elements<kStates>(ctx, typename Rule::template Step<T>(rule, rate, step), u, static_cast<T>(scale));
}

class Optimizer final : public OptimizerKernels::Each<Optimizer, OptimizerKernels> {
 public:
  template <typename Rule>
  void each(KernelContext& ctx, const kernels::Update<Rule>& call) {
    const double scale = call.scale ? *call.scale.template as<double>() : 1;
    const double rate = call.rate ? *call.rate.template as<double>() : call.rule.lr;
    for (const Update<View>& u : call.updates) {
      if (u.present && *u.present.as<std::uint8_t>() == 0) continue;
      std::int64_t step = 0;
      if constexpr (Rule::kCountsSteps) step = ++*u.steps.as<std::int64_t>();
      if (scale < 0) continue;
      constexpr int kStates = Rule::kLeastStates;
      u.weight.dtype == DType::f64 ? update_as<double, kStates>(ctx, call.rule, rate, step, u, scale)
                                   : update_as<float, kStates>(ctx, call.rule, rate, step, u, scale);
    }
  }
  void each(KernelContext&, const kernels::ClipScale& call) {
    *call.scale.as<double>() = clip_factor(call.max_norm, std::sqrt(*call.squared_norm.as<double>()));
  }
  void each(KernelContext&, const kernels::LossScale& call) {
    *call.factor.as<double>() = loss_scale_factor(call.args, *call.squared_norm.as<double>(), call.state.as<float>());
  }
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_cpu_optimizer() { return std::make_unique<Optimizer>(); }

}  // namespace lockstep
