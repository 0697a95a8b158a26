#include "lockstep/backend/cpu/f32_matmul.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class CpuMatmul final : public MatmulKernels {
 public:
  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const View& b, const View& bias,
              const View& c) override {
    kernels(a).matmul(context, options, a, b, bias, c);
  }

 private:
  MatmulKernels& kernels(const View& a) {
    if (a.dtype == DType::f64) return *f64_;
    // oneDNN has no products over zero terms.
    return a.dtype == DType::bf16 && native_bf16_ && a.numel() > 0 ? *bf16_ : *f32_;
  }

  const bool native_bf16_ = has_native_bf16();
  std::unique_ptr<MatmulKernels> f64_ = reference::make_matmul(), f32_ = make_f32_matmul(),
                                 bf16_ = make_onednn_matmul();
};

}  // namespace

std::unique_ptr<MatmulKernels> make_cpu_matmul() { return std::make_unique<CpuMatmul>(); }

}  // namespace lockstep
