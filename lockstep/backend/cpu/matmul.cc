#include "lockstep/backend/cpu/f32_matmul.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class CpuMatmul final : public MatmulKernels {
 public:
  std::int64_t prepared_size(const MatmulOptions& options, std::int64_t rows, const Shape& b,
                             DType dtype) const override {
    return kernels(dtype).prepared_size(options, rows, b, dtype);
  }
  void prepare(KernelContext& context, const MatmulOptions& options, const View& b, DType dtype,
               const View& prepared) override {
    kernels(dtype).prepare(context, options, b, dtype, prepared);
  }
  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const WeightView& b,
              const View& bias, const View& c) override {
    // oneDNN has no products over zero terms.
    MatmulKernels& chosen = a.dtype == DType::bf16 && a.numel() == 0 ? *f32_ : kernels(a.dtype);
    chosen.matmul(context, options, a, b, bias, c);
  }

 private:
  MatmulKernels& kernels(DType dtype) const {
    if (dtype == DType::f64) return *f64_;
    return dtype == DType::bf16 && native_bf16_ ? *bf16_ : *f32_;
  }

  const bool native_bf16_ = has_native_bf16();
  std::unique_ptr<MatmulKernels> f64_ = reference::make_matmul(), f32_ = make_f32_matmul(),
                                 bf16_ = make_onednn_matmul();
};

}  // namespace

std::unique_ptr<MatmulKernels> make_cpu_matmul() { return std::make_unique<CpuMatmul>(); }

}  // namespace lockstep
