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

  void forward(KernelContext& context, const Conv2dOptions& options, const View& x, const WeightView& w,
               const View& bias, const View& y) override {
    if (y.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_forward, .conv = options}, {x, w, bias, y});
  }

  void backward_data(KernelContext& context, const Conv2dOptions& options, const View& dy, const WeightView& w,
                     const View& dx) override {
    if (dx.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_backward_data, .conv = options}, {dx, w, View{}, dy});
  }

  void backward_weights(KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy,
                        const View& dw, const View& db) override {
    if (x.numel() == 0) {
      set_zero(dw);
      set_zero(db);
      return;
    }
    if (onednn::unfolding_pays(options, x, dy, dw)) {
      return onednn::backward_weights_unfolded(executor_, context, options, x, dy, dw, db);
    }
    executor_.run(context, {.kind = Kind::conv_backward_weights, .conv = options}, {x, dw, db, dy});
  }

 private:
  onednn::Executor executor_;
};

}  // namespace

std::unique_ptr<ConvKernels> make_onednn_conv() { return std::make_unique<OnednnConv>(); }

}  // namespace lockstep
