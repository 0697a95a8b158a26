#include "lockstep/backend/reference/families.h"

namespace lockstep {
namespace {

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend()
      : Backend({.elementwise = reference::make_elementwise(),
                 .copy = reference::make_copy(),
                 .index = reference::make_index(),
                 .reduce = reference::make_reduce(),
                 .matmul = reference::make_matmul(),
                 .conv = reference::make_conv(),
                 .norm = reference::make_norm(),
                 .pool = reference::make_pool(),
                 .softmax = reference::make_softmax(),
                 .random = reference::make_random(),
                 .optimizer = reference::make_optimizer(),
                 .attention = reference::make_attention()}) {}
  std::string_view name() const override { return "reference"; }
  bool multiplies(DType) const override { return false; }
  bool fuses_attention(DType dtype) const override { return dtype == DType::f32; }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace lockstep
