#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

class Matmul final : public MatmulKernels {
 public:
  void matmul(KernelContext&, const MatmulOptions& options, const View& a, const WeightView& b, const View& bias,
              const View& c) override {
    Elements u(a), v(b), t(bias), out(c);
    std::int64_t m = c.shape[0], n = c.shape[1], k = a.shape[options.transpose_a ? 0 : 1];
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias ? t[j] : 0;
        for (std::int64_t l = 0; l < k; ++l) {
          double x = u[options.transpose_a ? l * m + i : i * k + l];
          double y = v[options.transpose_b ? j * k + l : l * n + j];
          sum += x * rounded(y, a.dtype);
        }
        out.set(i * n + j, sum);
      }
    }
  }
};

}  // namespace

std::unique_ptr<MatmulKernels> make_matmul() { return std::make_unique<Matmul>(); }

}  // namespace lockstep::reference
