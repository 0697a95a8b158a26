#include "lockstep/backend/cpu/f32_conv.h"
#include "lockstep/backend/cpu/f64_kernels.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"

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
  void run(KernelContext& context, const kernels::PrepareConv& call) override {
    kernels(call.dtype).run(context, call);
  }
  void run(KernelContext& context, const kernels::Conv& call) override { kernels(call.x.dtype).run(context, call); }
  void run(KernelContext& context, const kernels::ConvBackwardData& call) override {
    kernels(call.dy.dtype).run(context, call);
  }
  void run(KernelContext& context, const kernels::ConvBackwardWeights& call) override {
    kernels(call.x.dtype).run(context, call);
  }

 private:
  ConvKernels& kernels(DType dtype) const {
    if (dtype == DType::f64) return *f64_;
    return dtype == DType::bf16 && native_bf16_ ? *bf16_ : *f32_;
  }

  const bool native_bf16_ = has_native_bf16();
  std::unique_ptr<ConvKernels> f64_ = make_f64_conv(), f32_, bf16_ = make_onednn_conv();
};

}  // namespace

std::unique_ptr<ConvKernels> make_cpu_conv(const CpuBackendOptions& options) {
  return std::make_unique<CpuConv>(options);
}

}  // namespace lockstep
