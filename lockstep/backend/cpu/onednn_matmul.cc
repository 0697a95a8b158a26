#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/backend/cpu/onednn_executor.h"

namespace lockstep {
namespace {

class OnednnMatmul final : public MatmulKernels {
 public:
  using MatmulKernels::run;
  void run(KernelContext& context, const kernels::Matmul& call) override {
    if (call.c.numel() == 0) return;
    executor_.run(context,
                  {.kind = onednn::Kind::matmul,
                   .transpose_x = call.options.transpose_a,
                   .transpose_w = call.options.transpose_b},
                  {call.a, call.b, call.bias, call.c});
  }

 private:
  onednn::Executor executor_;
};

}  // namespace

std::unique_ptr<MatmulKernels> make_onednn_matmul() { return std::make_unique<OnednnMatmul>(); }

}  // namespace lockstep
