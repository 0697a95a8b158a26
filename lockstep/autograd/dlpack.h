// Tensors of other libraries without a copy, and for them: DLPack (https://dmlc.github.io/dlpack), which PyTorch, JAX,
// CuPy, NumPy, and ONNX Runtime speak.
//
//   #include <dlpack/dlpack.h>
//   DLManagedTensor* theirs = at::toDLPack(torch_tensor);
//   Tensor x = from_dlpack(theirs);
//   DLManagedTensor* ours = to_dlpack(x);
//
// Both forms of the struct are supported: that of versions below 1.0, and the versioned one of 1.x. This header only
// names them, so that it fits beside any version of dlpack.h.
#pragma once

#include "lockstep/autograd/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace LOCKSTEP_API lockstep {

// The tensor's memory, until the receiver calls the struct's deleter, in any thread. Waits until the values are ready.
// What either side writes, the other one sees, but neither knows of the other's writes: order them yourself, and write
// nothing between a forward and its backward pass. Memory of CPU devices and of the host is kDLCPU, of GPUs kDLCUDA.
// Arrays are plain or channels-last; kernels' blocked layout is copied to plain. Throws for a tensor that requires a
// gradient (detach() it), that is cut over shards (gather() it), or that has replicas (choose Parameter::data(device)).
DLManagedTensor* to_dlpack(const Tensor& x);
// The same with flags: it also passes on memory that must not be written, which the other form refuses.
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& x);

// A tensor of the struct's memory, whose deleter is called when nobody uses the tensor any more: no handle, no view, no
// task. kDLCPU and kDLCUDAHost become host memory. kDLCUDA becomes a tensor of `device`, or of the default Runtime's
// device of that GPU; the sender's stream must have written it. Types: f32, f64, f16, bf16, i64, u8, and bool as u8.
// Throws, and leaves the struct the caller's, for another type or device, for elements that are neither row-major nor
// channels-last (make them contiguous first), for unaligned memory, and for a version above 1.
Tensor from_dlpack(DLManagedTensor* tensor, Device device = {});
Tensor from_dlpack(DLManagedTensorVersioned* tensor, Device device = {});

}  // namespace lockstep
