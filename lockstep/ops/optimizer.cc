#include "lockstep/ops/optimizer.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {

UpdateOperands update_operands(std::string_view what, std::span<const Update<Array>> updates, std::size_t groups,
                               const Array& scale, const Array& rates) {
  UpdateOperands o;
  o.updates.resize(groups);
  o.rates.resize(groups);
  for (const Update<Array>& u : updates) {
    check_same(what, u.weight, u.grad);
    check(u.group < groups, "{}: group {} of {}", what, u.group, groups);
    Update<Array>::views(u, [&](const Array& array) { o.reads.push_back(array); });
    o.writes.insert(o.writes.end(), {u.weight, u.steps});
    o.writes.insert(o.writes.end(), u.states.begin(), u.states.end());
    o.updates[u.group].push_back({.weight = u.weight.view(),
                                  .grad = u.grad.view(),
                                  .states = {u.states[0].view(), u.states[1].view(), u.states[2].view()},
                                  .present = u.present.view(),
                                  .steps = u.steps.view()});
  }
  o.reads.insert(o.reads.end(), {scale, rates});
  for (std::size_t g = 0; g < groups && rates.defined(); ++g) {
    o.rates[g] = narrow(rates, static_cast<std::int64_t>(g), 1).view();
  }
  return o;
}

Array clip_scale(const Array& squared_norm, double max_norm) {
  check(max_norm > 0, "clip: norm {}, expected above 0", max_norm);
  Array scale = empty({1}, DType::f64, squared_norm.device());
  launch("clip scale", {squared_norm}, {scale}, kernels::ClipScale{max_norm, squared_norm.view(), scale.view()});
  return scale;
}

Array loss_scale_(const Array& state, const Array& squared_norm, const LossScaleArgs& args) {
  check_defined("loss scale", state);
  check(state.dtype() == DType::f32 && state.shape() == Shape{2}, "loss scale: the state is {}, expected [2] f32",
        state);
  const Array squared = readable_from(squared_norm, state.device());
  Array factor = empty({1}, DType::f64, state.device());
  launch("loss scale", {squared, state}, {factor, state},
         kernels::LossScale{args, squared.view(), state.view(), factor.view()}, {.foreign_reads = true});
  return factor;
}

}  // namespace lockstep::ops
