#include <algorithm>

#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_executor.h"
#include "lockstep/backend/cpu/onednn_unfold.h"

namespace lockstep {
namespace {

using onednn::Kind;

void set_zero(const View& v) {
  if (v) std::fill_n(static_cast<std::byte*>(v.data), v.bytes(), std::byte{0});
}

class OnednnConv final : public ConvKernels {
 public:
  Layout preferred_layout(DType, std::int64_t) const override { return Layout::channels_last; }

  using ConvKernels::run;
  void run(KernelContext& context, const kernels::Conv& call) override {
    if (call.y.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_forward, .conv = call.options}, {call.x, call.w, call.bias, call.y});
  }

  void run(KernelContext& context, const kernels::ConvBackwardData& call) override {
    if (call.dx.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_backward_data, .conv = call.options},
                  {call.dx, call.w, View{}, call.dy});
  }

  void run(KernelContext& context, const kernels::ConvBackwardWeights& call) override {
    if (call.x.numel() == 0) {
      set_zero(call.dw);
      set_zero(call.db);
      return;
    }
    if (onednn::unfolding_pays(call.options, call.x, call.dy, call.dw)) {
      return onednn::backward_weights_unfolded(executor_, context, call.options, call.x, call.dy, call.dw, call.db);
    }
    executor_.run(context, {.kind = Kind::conv_backward_weights, .conv = call.options},
                  {call.x, call.dw, call.db, call.dy});
  }

 private:
  onednn::Executor executor_;
};

}  // namespace

std::unique_ptr<ConvKernels> make_onednn_conv() { return std::make_unique<OnednnConv>(); }

}  // namespace lockstep
