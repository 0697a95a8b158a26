#include "lockstep/backend/matmul.h"

#include <cstddef>

namespace lockstep {
namespace {

// Matrix i of [batch, rows, columns].
View matrix(const View& x, std::int64_t i) {
  View one = x;
  one.shape = {x.shape[1], x.shape[2]};
  one.data = static_cast<std::byte*>(x.data) + static_cast<std::size_t>(i) * one.bytes();
  return one;
}

}  // namespace

void MatmulKernels::batched_matmul(KernelContext& context, const MatmulOptions& options, const View& a, const View& b,
                                   const View& c) {
  for (std::int64_t i = 0; i < c.shape[0]; ++i) matmul(context, options, matrix(a, i), matrix(b, i), {}, matrix(c, i));
}

}  // namespace lockstep
