#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_executor.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class OnednnMatmul final : public MatmulKernels {
 public:
  explicit OnednnMatmul(bool native_bf16) : executor_(native_bf16) {}

  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const View& b,
              const View& bias, const View& c) override {
    // oneDNN has no products over nothing; there c is the bias or zero.
    if (a.dtype == DType::f64 || a.numel() == 0) return reference_->matmul(context, options, a, b, bias, c);
    if (c.numel() == 0) return;
    executor_.run(context,
                  {.kind = onednn::Kind::matmul,
                   .transpose_x = options.transpose_a,
                   .transpose_w = options.transpose_b},
                  {a, b, bias, c});
  }

 private:
  onednn::Executor executor_;
  std::unique_ptr<MatmulKernels> reference_ = reference::make_matmul();
};

}  // namespace

std::unique_ptr<MatmulKernels> make_onednn_matmul(bool native_bf16) {
  return std::make_unique<OnednnMatmul>(native_bf16);
}

}  // namespace lockstep
