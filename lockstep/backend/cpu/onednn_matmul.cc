#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_executor.h"

namespace lockstep {
namespace {

class OnednnMatmul final : public MatmulKernels {
 public:
  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const WeightView& b,
              const View& bias, const View& c) override {
    if (c.numel() == 0) return;
    executor_.run(
        context, {.kind = onednn::Kind::matmul, .transpose_x = options.transpose_a, .transpose_w = options.transpose_b},
        {a, b, bias, c});
  }

 private:
  onednn::Executor executor_;
};

}  // namespace

std::unique_ptr<MatmulKernels> make_onednn_matmul() { return std::make_unique<OnednnMatmul>(); }

}  // namespace lockstep
