#include "lockstep/backend/cpu/f64_kernels.h"
#include "lockstep/backend/cpu/parallel_for.h"

namespace lockstep {
namespace {

class F64Matmul final : public MatmulKernels {
 public:
  using MatmulKernels::run;
  void run(KernelContext& context, const kernels::Matmul& call) override {
    const auto [transpose_a, transpose_b] = call.options;
    const std::int64_t m = call.c.shape[0], n = call.c.shape[1], k = call.a.shape[transpose_a ? 0 : 1];
    const std::int64_t a_row = transpose_a ? 1 : k, a_term = transpose_a ? m : 1;
    const std::int64_t b_term = transpose_b ? 1 : n, b_column = transpose_b ? k : 1;
    const double *a = call.a.as<double>(), *b = call.b.as<double>();
    const double* bias = call.bias ? call.bias.as<double>() : nullptr;
    parallel_for(context, m, 1, [&, c = call.c.as<double>()](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t j = 0; j < n; ++j) c[i * n + j] = bias ? bias[j] : 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double x = a[i * a_row + l * a_term];
          for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += x * b[l * b_term + j * b_column];
        }
      }
    });
  }
};

}  // namespace

std::unique_ptr<MatmulKernels> make_f64_matmul() { return std::make_unique<F64Matmul>(); }

}  // namespace lockstep
