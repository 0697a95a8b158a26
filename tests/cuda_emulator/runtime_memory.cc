// The CUDA runtime's functions for memory.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

namespace {

cudaError_t allocate_to(void** p, std::size_t bytes, MemoryKind kind) {
  *p = nullptr;
  if (forked()) return set_last_error(cudaErrorInitializationError);
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  if (bytes == 0) return cudaSuccess;
  *p = allocate(bytes, kind, current_device());
  return set_last_error(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t release_from(void* p, MemoryKind kind) {
  const int device = current_device();
  if (!p) return cudaSuccess;
  synchronize_device(device);
  return set_last_error(release(p, kind) ? cudaSuccess : cudaErrorInvalidValue);
}

// Whether all bytes of both sides are of the kind that `kind` states.
bool fits(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = find(to, bytes).kind == MemoryKind::device;
  const bool from_device = find(from, bytes).kind == MemoryKind::device;
  switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

cudaError_t copy_on(Stream* stream, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (!fits(to, from, bytes, kind)) return set_last_error(cudaErrorInvalidValue);
  if (cudaError_t error = device_error(stream->device()); error != cudaSuccess) return set_last_error(error);
  const bool pageable_source = find(from, bytes).kind == MemoryKind::unknown;
  const bool pageable_destination = find(to, bytes).kind == MemoryKind::unknown;
  if ((pageable_source || pageable_destination) && !stream->may_wait()) {
    return set_last_error(cudaErrorStreamCaptureUnsupported);
  }
  if (pageable_source) {
    // Read before the call returns, like the runtime, which uses its own buffer.
    const auto* first = static_cast<const char*>(from);
    stream->enqueue(
        [to, bytes, copy = std::vector<char>(first, first + bytes)] { std::memcpy(to, copy.data(), bytes); });
  } else {
    stream->enqueue([=] { std::memmove(to, from, bytes); });
  }
  if (pageable_destination) stream->synchronize();
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t bytes) { return allocate_to(p, bytes, MemoryKind::device); }
cudaError_t cudaFree(void* p) { return release_from(p, MemoryKind::device); }
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return allocate_to(p, bytes, MemoryKind::pinned); }
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) { return allocate_to(p, bytes, MemoryKind::pinned); }
cudaError_t cudaFreeHost(void* p) { return release_from(p, MemoryKind::pinned); }

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return set_last_error(find(host, 1).kind == MemoryKind::pinned ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  *attributes = {};
  current_device();
  const MemoryPlace place = find(p, 1);
  attributes->device = place.device;
  attributes->type = place.kind == MemoryKind::device   ? cudaMemoryTypeDevice
                     : place.kind == MemoryKind::pinned ? cudaMemoryTypeHost
                                                        : cudaMemoryTypeUnregistered;
  attributes->devicePointer = place.kind == MemoryKind::unknown ? nullptr : const_cast<void*>(p);
  attributes->hostPointer = place.kind == MemoryKind::device ? nullptr : const_cast<void*>(p);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = total_memory();
  *free = free_memory(current_device());
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_on(find_stream(stream), to, from, bytes, kind);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return copy_on(find_stream(stream), to, from, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  Stream* stream = find_stream(nullptr);
  if (cudaError_t error = copy_on(stream, to, from, bytes, kind); error != cudaSuccess) return error;
  stream->synchronize();
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (find(p, bytes).kind == MemoryKind::unknown) return set_last_error(cudaErrorInvalidValue);
  stream->enqueue([=] { std::memset(p, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* p, int value, std::size_t bytes) {
  if (cudaError_t error = cudaMemsetAsync(p, value, bytes, nullptr); error != cudaSuccess) return error;
  find_stream(nullptr)->synchronize();
  return cudaSuccess;
}

}  // extern "C"
