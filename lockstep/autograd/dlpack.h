// Exchanges tensors with other libraries without a copy: DLPack (https://dmlc.github.io/dlpack), which PyTorch, JAX,
// CuPy, NumPy, and ONNX Runtime support.
//
//   #include <dlpack/dlpack.h>
//   DLManagedTensor* theirs = at::toDLPack(torch_tensor);
//   Tensor x = from_dlpack(theirs);
//   DLManagedTensor* ours = to_dlpack(x);
//
// Both forms of the struct are supported: that of versions below 1.0, and the versioned one of 1.x. This header only
// declares them, so that it works with any version of dlpack.h.
#pragma once

#include "lockstep/autograd/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace LOCKSTEP_API lockstep {

// Lends the tensor's memory until the receiver calls the struct's deleter, in any thread. Waits until the values are
// ready. Each side sees what the other side writes, but is not told of it: order the writes yourself, and write nothing
// between a forward and its backward pass. Memory of CPU devices and of the host is kDLCPU, of GPUs kDLCUDA. Arrays are
// plain or channels-last; kernels' blocked layout is copied to plain. Throws for a tensor that requires a gradient
// (detach() it), that is cut over shards (gather() it), or that has replicas (choose Parameter::data(device)).
DLManagedTensor* to_dlpack(const Tensor& x);
// The same with flags: it also lends memory that must not be written, for which to_dlpack() throws.
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& x);

// Makes a tensor of the struct's memory. The deleter is called when nobody uses the tensor any more: no handle, no
// view, no task. kDLCPU and kDLCUDAHost become host memory. kDLCUDA becomes a tensor of `device`, or of the default
// Runtime's device of that GPU; the sender's stream must have finished writing it. Types: f32, f64, f16, bf16, i64, u8,
// and bool. Throws, and leaves the struct to the caller, for another type or device, for elements that are neither
// row-major nor channels-last (make them contiguous first), for unaligned memory, and for a version other than 1.x.
Tensor from_dlpack(DLManagedTensor* tensor, Device device = {});
Tensor from_dlpack(DLManagedTensorVersioned* tensor, Device device = {});

}  // namespace lockstep
