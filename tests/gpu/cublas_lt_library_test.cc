// Tests that cuBLASLt is loaded at its first call (backend/cuda/cublas_lt_library.cc), with functions that need no GPU.
// The emulation loads nothing.
#ifndef LOCKSTEP_CUDA_EMULATED
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(CublasLtLibrary, IsThereWhenItIsCalled) {
  EXPECT_GE(cublasLtGetVersion(), std::size_t{130000});
  EXPECT_STRNE(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS));

  cublasLtMatmulDescOpaque_t product;
  ASSERT_EQ(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transpose = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(&product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
            CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayoutOpaque_t layout;
  EXPECT_EQ(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 4, 3, 4), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulPreferenceOpaque_t preference;
  EXPECT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  const std::size_t bytes = 1 << 20;
  EXPECT_EQ(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
      CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace lockstep
#endif
