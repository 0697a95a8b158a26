#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend()
      : Backend({.elementwise = make_cpu_elementwise(),
                 .copy = make_cpu_copy(),
                 .reduce = make_cpu_reduce(),
                 .matmul = make_onednn_matmul(),
                 .conv = make_onednn_conv(),
                 .norm = make_cpu_norm(),
                 .pool = make_cpu_pool(),
                 .softmax = make_cpu_softmax(),
                 .random = make_cpu_random(),
                 .optimizer = make_cpu_optimizer()}) {}
  std::string_view name() const override { return "cpu"; }
  bool multiplies(DType half) const override { return half == DType::bf16 && has_native_bf16(); }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace lockstep
