#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep {
namespace {

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  bool native_bf16() const override { return has_native_bf16(); }
  ElementwiseKernels& elementwise() override { return *elementwise_; }
  CopyKernels& copy() override { return *copy_; }
  ReduceKernels& reduce() override { return *reduce_; }
  MatmulKernels& matmul() override { return *matmul_; }
  ConvKernels& conv() override { return *conv_; }
  NormKernels& norm() override { return *norm_; }
  PoolKernels& pool() override { return *pool_; }
  SoftmaxKernels& softmax() override { return *softmax_; }
  RandomKernels& random() override { return *random_; }
  OptimizerKernels& optimizer() override { return *optimizer_; }

 private:
  std::unique_ptr<ElementwiseKernels> elementwise_ = make_cpu_elementwise();
  std::unique_ptr<CopyKernels> copy_ = make_cpu_copy();
  std::unique_ptr<ReduceKernels> reduce_ = make_cpu_reduce();
  std::unique_ptr<MatmulKernels> matmul_ = make_onednn_matmul();
  std::unique_ptr<ConvKernels> conv_ = make_onednn_conv();
  std::unique_ptr<NormKernels> norm_ = make_cpu_norm();
  std::unique_ptr<PoolKernels> pool_ = make_cpu_pool();
  std::unique_ptr<SoftmaxKernels> softmax_ = make_cpu_softmax();
  std::unique_ptr<RandomKernels> random_ = make_cpu_random();
  std::unique_ptr<OptimizerKernels> optimizer_ = make_cpu_optimizer();
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace lockstep
