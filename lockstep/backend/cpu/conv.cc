#include "lockstep/backend/cpu/f32_conv.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class CpuConv final : public ConvKernels {
 public:
  explicit CpuConv(const CpuBackendOptions& options) : f32_(make_f32_conv({.direct = options.direct_conv})) {}

  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    return kernels(dtype).preferred_layout(dtype, channels);
  }
  std::int64_t prepared_size(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w,
                             DType dtype) const override {
    return kernels(dtype).prepared_size(pass, options, x, w, dtype);
  }
  void prepare(KernelContext& context, ConvPass pass, const Conv2dOptions& options, const Shape& x, const View& w,
               DType dtype, const View& prepared) override {
    kernels(dtype).prepare(context, pass, options, x, w, dtype, prepared);
  }
  void forward(KernelContext& context, const Conv2dOptions& options, const View& x, const WeightView& w,
               const View& bias, const View& y) override {
    kernels(x.dtype).forward(context, options, x, w, bias, y);
  }
  void backward_data(KernelContext& context, const Conv2dOptions& options, const View& dy, const WeightView& w,
                     const View& dx) override {
    kernels(dy.dtype).backward_data(context, options, dy, w, dx);
  }
  void backward_weights(KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy,
                        const View& dw, const View& db) override {
    kernels(x.dtype).backward_weights(context, options, x, dy, dw, db);
  }

 private:
  ConvKernels& kernels(DType dtype) const {
    if (dtype == DType::f64) return *f64_;
    return dtype == DType::bf16 && native_bf16_ ? *bf16_ : *f32_;
  }

  const bool native_bf16_ = has_native_bf16();
  std::unique_ptr<ConvKernels> f64_ = reference::make_conv(), f32_, bf16_ = make_onednn_conv();
};

}  // namespace

std::unique_ptr<ConvKernels> make_cpu_conv(const CpuBackendOptions& options) {
  return std::make_unique<CpuConv>(options);
}

}  // namespace lockstep
