#include "lockstep/base/sha256.h"
#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

// Known once and for all: any number of threads and any vector instructions give the same bits.
TEST(CpuRowNormTest, SameBitsEverywhere) {
  const auto hash = [](int threads) {
    Random random(7);
    const auto cpu = make_cpu_backend();
    KernelContext context{threads};
    Sha256 sha;
    for (const Shape& shape : std::vector<Shape>{{5, 7}, {200, 33}, {130, 128}, {3, 1030}}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const Shape row{shape[1]}, rows{shape[0]};
        const TestTensor x = random.tensor(shape, dtype), dy = random.tensor(shape, dtype);
        const TestTensor w = random.tensor(row, DType::f32), bias = random.tensor(row, DType::f32);
        const TestTensor y(shape, dtype), mean(rows), rstd(rows), dx(shape, dtype), dw(row), db(row);
        cpu->run(context, kernels::NormRows{x.view(), w.view(), bias.view(), 1e-5, mean.view(), rstd.view(), y.view()});
        cpu->run(context, kernels::NormRowsBackward{dy.view(), x.view(), mean.view(), rstd.view(), w.view(), dx.view(),
                                                    dw.view(), db.view()});
        for (const TestTensor* t : {&y, &mean, &rstd, &dx, &dw, &db}) {
          const View v = t->view();
          sha.update({static_cast<const std::byte*>(v.data), static_cast<std::size_t>(v.numel()) * item_size(v.dtype)});
        }
      }
    }
    return sha.hex();
  };
  for (const int threads : {1, 2, 3}) {
    EXPECT_EQ(hash(threads), "cddfc0d5a727f274a2a1497e5d80d8f186d4c8e301573ebcdba9545d314f65a6") << threads;
  }
}

}  // namespace
}  // namespace lockstep::testing
