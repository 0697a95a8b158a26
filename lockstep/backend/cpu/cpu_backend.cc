#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu/cpu_features.h"
#include "lockstep/backend/cpu/f16.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options)
      : Backend({.elementwise = make_cpu_elementwise(),
                 .copy = cpu::with_f16(make_cpu_copy()),
                 .index = cpu::with_f16(make_cpu_index()),
                 .reduce = cpu::with_f16(make_cpu_reduce()),
                 .matmul = make_cpu_matmul(),
                 .conv = make_cpu_conv(options),
                 .norm = cpu::with_f16(make_cpu_norm()),
                 .pool = cpu::with_f16(make_cpu_pool()),
                 .softmax = cpu::with_f16(make_cpu_softmax()),
                 .random = cpu::with_f16(make_cpu_random()),
                 .optimizer = make_cpu_optimizer(),
                 .attention = make_cpu_attention()}) {}
  std::string_view name() const override { return "cpu"; }
  bool multiplies(DType half) const override { return half == DType::bf16 && has_native_bf16(); }
  bool fuses_attention(DType dtype) const override { return dtype == DType::f32; }
  bool threads_decide_bits(DType dtype) const override { return dtype == DType::bf16 && has_native_bf16(); }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  static_cast<void>(simd());  // reports a wrong LOCKSTEP_SIMD here instead of in the first kernel
  return std::make_unique<CpuBackend>(options);
}

}  // namespace lockstep
