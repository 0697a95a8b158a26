#include "lockstep/backend/cpu/f32_matmul.h"
#include "lockstep/backend/cpu/f64_kernels.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep {
namespace {

class CpuMatmul final : public MatmulKernels {
 public:
  std::int64_t prepared_size(const MatmulOptions& options, std::int64_t rows, const Shape& b,
                             DType dtype) const override {
    return kernels(dtype).prepared_size(options, rows, b, dtype);
  }
  using MatmulKernels::run;
  void run(KernelContext& context, const kernels::PrepareMatmul& call) override {
    kernels(call.dtype).run(context, call);
  }
  void run(KernelContext& context, const kernels::Matmul& call) override {
    // oneDNN has no products over zero terms.
    (call.a.dtype == DType::bf16 && call.a.numel() == 0 ? *f32_ : kernels(call.a.dtype)).run(context, call);
  }

 private:
  MatmulKernels& kernels(DType dtype) const {
    if (dtype == DType::f64) return *f64_;
    return dtype == DType::bf16 && native_bf16_ ? *bf16_ : *f32_;
  }

  const bool native_bf16_ = has_native_bf16();
  std::unique_ptr<MatmulKernels> f64_ = make_f64_matmul(), f32_ = make_f32_matmul(), bf16_ = make_onednn_matmul();
};

}  // namespace

std::unique_ptr<MatmulKernels> make_cpu_matmul() { return std::make_unique<CpuMatmul>(); }

}  // namespace lockstep
