// Internal: operations that move elements: between devices, types and layouts.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/tensor/array.h"
#include "lockstep/tensor/copy_options.h"

namespace lockstep::ops {

// Returns `shape` with -1 replaced by the extent that gives `numel` elements.
Shape resolve_shape(std::string_view what, Shape shape, std::int64_t numel);
// The same memory under another shape; plain layout. One extent may be -1, which is inferred.
Array reshape(const Array& x, Shape shape);
// Rows [start, start + count) of axis 0: the same memory.
Array narrow(const Array& x, std::int64_t start, std::int64_t count);

// The same handle if it has this type.
Array to_dtype(const Array& x, DType dtype);
// The same handle if it has this layout, or the same order of elements in memory.
Array to_layout(const Array& x, Layout layout);
// Converts type and layout in one task. Returns the same handle if nothing changes.
Array convert(const Array& x, DType dtype, Layout layout);

// y = x: same shape; any pair of devices, types and layouts. In host memory, this thread copies. Otherwise, copies
// between devices run on a copy lane: into y's device if x is on the host, or on a CPU device and y on a GPU, else out
// of x's device. With `non_blocking`, copies to the host return at once, and copies from the host hold x until they are
// done, except for memory that must be read at once (Storage).
void copy_(const Array& x, const Array& y, CopyOptions options = {});
// A copy in new memory, in x's layout. Waits if x is in host memory.
Array copy_of(const Array& x);
// A copy on another device, in x's layout (kHost: in host memory, plain); the same handle if x is there.
Array to_device(const Array& x, Device device, CopyOptions options = {});
// x if the host can read its memory, as that of a CPU device; else a copy in host memory.
Array host_readable(const Array& x);
// Uninitialized host memory that copies to and from `device` use directly. For a CPU device, this is any host memory.
// For a GPU, it is page-locked and comes from a pool: wait for it (Engine::wait_unused) before the host writes it.
Array empty_host(const Shape& shape, DType dtype, Device device);
// A copy of x, which is in host memory, in memory of empty_host(); the same handle for CPU devices.
Array pin(const Array& x, Device device);
// x, which is in host memory, as an array of a CPU device, whose kernels read the memory in place. Until they have run,
// change it only by operations. For memory that must be read at once (Storage), a copy.
Array lend(const Array& x, Device device);
// x if kernels of `device` can read it in place, else a copy on `device`.
Array readable_from(const Array& x, Device device);

// Joins the parts along axis 0, on `device`.
Array concatenate(std::span<const Array> parts, Device device);

}  // namespace lockstep::ops
