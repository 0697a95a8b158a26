#include "lockstep/ops/optimizer.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

template <typename Args>
using UpdateKernel = void (OptimizerKernels::*)(KernelContext&, const Args&, std::span<const UpdateItem>, const View&);

template <typename Args>
void update(std::string_view what, std::span<const Update> updates, std::vector<Args> groups, const Array& scale,
            const Array& rates, UpdateKernel<Args> kernel) {
  if (updates.empty()) return;
  std::vector<Array> reads, writes;
  std::vector<std::vector<UpdateItem>> items(groups.size());
  reads.reserve(updates.size() * 6 + 2);
  writes.reserve(updates.size() * 4);
  for (const Update& u : updates) {
    check_same(what, u.weight, u.grad);
    check(u.group < groups.size(), "{}: group {} of {}", what, u.group, groups.size());
    reads.insert(reads.end(), {u.weight, u.grad, u.state0, u.state1, u.present, u.steps});
    writes.insert(writes.end(), {u.weight, u.state0, u.state1, u.steps});
    items[u.group].push_back(
        {u.weight.view(), u.grad.view(), u.state0.view(), u.state1.view(), u.present.view(), u.steps.view()});
  }
  reads.insert(reads.end(), {scale, rates});
  for (std::size_t g = 0; g < groups.size() && rates.defined(); ++g) {
    groups[g].rate = narrow(rates, static_cast<std::int64_t>(g), 1).view();
  }
  launch(what, reads, writes,
         [kernel, groups = std::move(groups), items = std::move(items), scale = scale.view()](Backend& b,
                                                                                              KernelContext& c) {
           for (std::size_t g = 0; g < groups.size(); ++g) {
             if (!items[g].empty()) (b.optimizer().*kernel)(c, groups[g], items[g], scale);
           }
         },
         {.foreign_reads = true});
}

}  // namespace

void sgd_(std::span<const Update> updates, std::vector<SgdArgs> groups, const Array& scale, const Array& rates) {
  update("sgd", updates, std::move(groups), scale, rates, &OptimizerKernels::sgd);
}

void adam_(std::span<const Update> updates, std::vector<AdamArgs> groups, const Array& scale, const Array& rates) {
  for (const Update& u : updates) check(u.steps.defined(), "adam: an update has no number of steps");
  update("adam", updates, std::move(groups), scale, rates, &OptimizerKernels::adam);
}

Array clip_scale(const Array& squared_norm, double max_norm) {
  check(max_norm > 0, "clip: norm {}, expected above 0", max_norm);
  Array scale = empty({1}, DType::f64, squared_norm.device());
  launch("clip scale", {squared_norm}, {scale},
         [max_norm, n = squared_norm.view(), s = scale.view()](Backend& b, KernelContext& c) {
           b.optimizer().clip_scale(c, max_norm, n, s);
         });
  return scale;
}

Array loss_scale_(const Array& state, const Array& squared_norm, const LossScaleArgs& args) {
  check_on_device("loss scale", state);
  check(state.dtype() == DType::f32 && state.shape() == Shape{2}, "loss scale: the state is {}, expected [2] f32",
        state);
  const Array squared = readable_from(squared_norm, state.device());
  Array factor = empty({1}, DType::f64, state.device());
  launch("loss scale", {squared, state}, {factor, state},
         [args, n = squared.view(), s = state.view(), f = factor.view()](Backend& b, KernelContext& c) {
           b.optimizer().loss_scale(c, args, n, s, f);
         },
         {.foreign_reads = true});
  return factor;
}

}  // namespace lockstep::ops
