#include <algorithm>

#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_executor.h"
#include "lockstep/backend/cpu/onednn_unfold.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

using onednn::Kind;

void set_zero(const View& v) {
  if (v) std::fill_n(static_cast<std::byte*>(v.data), v.bytes(), std::byte{0});
}

class OnednnConv final : public ConvKernels {
 public:
  explicit OnednnConv(bool native_bf16) : native_bf16_(native_bf16), executor_(native_bf16) {}

  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    // f16, and bf16 without hardware for it, are computed as f32.
    bool narrow = dtype == DType::bf16 && native_bf16_;
    return !narrow && simd() == Simd::avx512 && channels % kChannelBlock == 0 ? Layout::blocked16
                                                                              : Layout::channels_last;
  }

  void forward(KernelContext& context, const Conv2dOptions& options, const View& x, const View& w,
               const View& bias, const View& y) override {
    if (x.dtype == DType::f64) return reference_->forward(context, options, x, w, bias, y);
    if (y.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_forward, .conv = options}, {x, w, bias, y});
  }

  void backward_data(KernelContext& context, const Conv2dOptions& options, const View& dy, const View& w,
                     const View& dx) override {
    if (dx.dtype == DType::f64) return reference_->backward_data(context, options, dy, w, dx);
    if (dx.numel() == 0) return;
    executor_.run(context, {.kind = Kind::conv_backward_data, .conv = options}, {dx, w, View{}, dy});
  }

  void backward_weights(KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy,
                        const View& dw, const View& db) override {
    if (x.dtype == DType::f64) return reference_->backward_weights(context, options, x, dy, dw, db);
    if (x.numel() == 0) {
      set_zero(dw);
      set_zero(db);
      return;
    }
    if (native_bf16_ && onednn::unfolding_pays(options, x, dy, dw)) {
      return onednn::backward_weights_unfolded(executor_, context, options, x, dy, dw, db);
    }
    executor_.run(context, {.kind = Kind::conv_backward_weights, .conv = options}, {x, dw, db, dy});
  }

 private:
  const bool native_bf16_;
  onednn::Executor executor_;
  std::unique_ptr<ConvKernels> reference_ = reference::make_conv();
};

}  // namespace

std::unique_ptr<ConvKernels> make_onednn_conv(bool native_bf16) {
  return std::make_unique<OnednnConv>(native_bf16);
}

}  // namespace lockstep
