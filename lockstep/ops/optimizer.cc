#include "lockstep/ops/optimizer.h"

#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep::ops {
namespace {

template <typename Kernel>
void update(std::string_view what, std::span<const Update> updates, const Array& scale, const Array& rates,
            Kernel kernel) {
  if (updates.empty()) return;
  std::vector<Array> reads, writes;
  std::vector<UpdateItem> items;
  reads.reserve(updates.size() * 5 + 2);
  writes.reserve(updates.size() * 3);
  items.reserve(updates.size());
  for (const Update& u : updates) {
    check_same(what, u.weight, u.grad);
    reads.insert(reads.end(), {u.weight, u.grad, u.state0, u.state1, u.present});
    writes.insert(writes.end(), {u.weight, u.state0, u.state1});
    items.push_back({u.weight.view(), u.grad.view(), u.state0.view(), u.state1.view(), u.present.view()});
  }
  reads.insert(reads.end(), {scale, rates});
  launch(what, reads, writes,
         [kernel, items = std::move(items), scale = scale.view()](Backend& b, KernelContext& c) {
           kernel(b.optimizer(), c, std::span<const UpdateItem>(items), scale);
         },
         {.foreign_reads = true});
}

}  // namespace

void sgd_(std::span<const Update> updates, SgdArgs args, const Array& scale, const Array& rates) {
  args.rates = rates.view();
  update("sgd", updates, scale, rates, [args](OptimizerKernels& k, KernelContext& c, auto items, const View& scale) {
    k.sgd(c, args, items, scale);
  });
}

void adam_(std::span<const Update> updates, AdamArgs args, const Array& scale, const Array& rates) {
  args.rates = rates.view();
  update("adam", updates, scale, rates, [args](OptimizerKernels& k, KernelContext& c, auto items, const View& scale) {
    k.adam(c, args, items, scale);
  });
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
