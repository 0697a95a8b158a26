// Built without oneDNN: the f32 kernels compute bf16, too.
#include "lockstep/backend/cpu/onednn.h"

namespace lockstep {

bool has_native_bf16() { return false; }
std::unique_ptr<ConvKernels> make_onednn_conv() { return nullptr; }
std::unique_ptr<MatmulKernels> make_onednn_matmul() { return nullptr; }

}  // namespace lockstep
