#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

class Matmul final : public MatmulKernels {
 public:
  using MatmulKernels::run;
  void run(KernelContext&, const kernels::Matmul& call) override {
    Elements u(call.a), v(call.b), t(call.bias), out(call.c);
    std::int64_t m = call.c.shape[0], n = call.c.shape[1], k = call.a.shape[call.options.transpose_a ? 0 : 1];
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = call.bias ? t[j] : 0;
        for (std::int64_t l = 0; l < k; ++l) {
          double x = u[call.options.transpose_a ? l * m + i : i * k + l];
          double y = v[call.options.transpose_b ? j * k + l : l * n + j];
          sum += x * rounded(y, call.a.dtype);
        }
        out.set(i * n + j, sum);
      }
    }
  }
};

}  // namespace

std::unique_ptr<MatmulKernels> make_matmul() { return std::make_unique<Matmul>(); }

}  // namespace lockstep::reference
