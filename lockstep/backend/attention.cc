#include "lockstep/backend/attention.h"

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class NoAttention final : public AttentionKernels {
 public:
  void run(KernelContext&, const kernels::Attention&) override {
    fail("attention: this back end has no kernel for it");
  }
  void run(KernelContext&, const kernels::AttentionBackward&) override {
    fail("attention backward: this back end has no kernel for it");
  }
};

}  // namespace

std::unique_ptr<AttentionKernels> no_attention_kernels() { return std::make_unique<NoAttention>(); }

}  // namespace lockstep
