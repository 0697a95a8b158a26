#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  bool native_bf16() const override { return false; }
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
  std::unique_ptr<ElementwiseKernels> elementwise_ = reference::make_elementwise();
  std::unique_ptr<CopyKernels> copy_ = reference::make_copy();
  std::unique_ptr<ReduceKernels> reduce_ = reference::make_reduce();
  std::unique_ptr<MatmulKernels> matmul_ = reference::make_matmul();
  std::unique_ptr<ConvKernels> conv_ = reference::make_conv();
  std::unique_ptr<NormKernels> norm_ = reference::make_norm();
  std::unique_ptr<PoolKernels> pool_ = reference::make_pool();
  std::unique_ptr<SoftmaxKernels> softmax_ = reference::make_softmax();
  std::unique_ptr<RandomKernels> random_ = reference::make_random();
  std::unique_ptr<OptimizerKernels> optimizer_ = reference::make_optimizer();
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace lockstep
