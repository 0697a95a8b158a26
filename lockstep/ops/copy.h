// Operations that move elements: between devices, types and layouts.
#pragma once

#include <span>

#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

// The same memory under another shape; plain layout. One extent may be -1: inferred.
Tensor reshape(const Tensor& x, Shape shape);
// Rows [start, start + count) of axis 0: the same memory.
Tensor narrow(const Tensor& x, std::int64_t start, std::int64_t count);

// The same handle if it has this layout, or lies in memory as if it had.
Tensor to_layout(const Tensor& x, Layout layout);
// One task for both; the same handle if nothing changes.
Tensor convert(const Tensor& x, DType dtype, Layout layout);

// y = x: same shape; any pair of devices, types and layouts. Runs on a copy lane when the devices differ: that of copies
// in of y's device if x is on the host, else that of copies out of x's. With `non_blocking`, copies to the host return
// at once and copies from the host hold x until they are done.
void copy_(const Tensor& x, const Tensor& y, CopyOptions options = {});
// A copy on another device, in x's layout.
Tensor to_device(const Tensor& x, Device device, CopyOptions options = {});
// Uninitialized host memory that copies to and from `device` reach without a detour. On CPU devices any host memory is
// such; for a GPU it is page-locked, and comes from a pool: wait for it (Engine::wait_unused) before the host writes it.
Tensor empty_host(const Shape& shape, DType dtype, Device device);
// A copy of host memory in such memory; the same handle for CPU devices.
Tensor pin(const Tensor& x, Device device);
// x if kernels of `device` can read it where it is, else a copy there.
Tensor readable_from(const Tensor& x, Device device);

// y[i] = x with axes permuted.
Tensor permute(const Tensor& x, std::span<const int> axes);
// Rows of x (axis 0) by number: rows i64 [n].
Tensor gather_rows(const Tensor& x, const Tensor& rows);
// One below the other (axis 0), on `device`.
Tensor concatenate(std::span<const Tensor> parts, Device device);

}  // namespace lockstep::ops
