#include "lockstep/backend/matmul.h"

#include <cstddef>

namespace lockstep {
namespace {

// Returns matrix i of [batch, rows, columns].
View matrix(const View& x, std::int64_t i) {
  View one = x;
  one.shape = {x.shape[1], x.shape[2]};
  one.data = static_cast<std::byte*>(x.data) + static_cast<std::size_t>(i) * one.bytes();
  return one;
}

}  // namespace

void MatmulKernels::run(KernelContext& context, const kernels::BatchedMatmul& call) {
  for (std::int64_t i = 0; i < call.c.shape[0]; ++i) {
    run(context, kernels::Matmul{call.options, matrix(call.a, i), matrix(call.b, i), {}, matrix(call.c, i)});
  }
}

}  // namespace lockstep
