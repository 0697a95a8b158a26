// The CUDA runtime's functions for devices and errors.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

namespace {
thread_local int device_of_thread = 0;
std::array<std::atomic<bool>, 16> contexts{};
}  // namespace

int cuda_emulator::current_device() {
  contexts.at(static_cast<std::size_t>(device_of_thread)) = true;
  return device_of_thread;
}
bool cuda_emulator::has_context(int device) { return contexts.at(static_cast<std::size_t>(device)); }
void cuda_emulator::forget_contexts() {
  for (auto& context : contexts) context = false;
}

namespace {

CUresult get_context_state(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = has_context(device);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return set_last_error(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  device_of_thread = device;
  current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) { return *device = device_of_thread, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "Emulated GPU %d", device);
  properties->uuid.bytes[0] = static_cast<char>(device);
  properties->totalGlobalMem = total_memory();
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = 50 << 20;
  properties->memoryBusWidth = 6144;
  properties->asyncEngineCount = 3;
  properties->concurrentKernels = 1;
  properties->unifiedAddressing = 1;
  properties->canMapHostMemory = 1;
  properties->streamPrioritiesSupported = 1;
  properties->pciBusID = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: return *value = p.multiProcessorCount, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: return *value = p.major, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: return *value = p.minor, cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: return *value = p.maxThreadsPerBlock, cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return *value = p.maxThreadsPerMultiProcessor, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: return *value = static_cast<int>(p.sharedMemPerBlock), cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(p.sharedMemPerBlockOptin), cudaSuccess;
    case cudaDevAttrWarpSize: return *value = p.warpSize, cudaSuccess;
    case cudaDevAttrClockRate: return *value = 1980000, cudaSuccess;
    case cudaDevAttrMemoryClockRate: return *value = 3201000, cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth: return *value = p.memoryBusWidth, cudaSuccess;
    case cudaDevAttrL2CacheSize: return *value = p.l2CacheSize, cudaSuccess;
    case cudaDevAttrAsyncEngineCount: return *value = p.asyncEngineCount, cudaSuccess;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported: return *value = 1, cudaSuccess;
    case cudaDevAttrPciBusId: return *value = p.pciBusID, cudaSuccess;
    default: return *value = 0, cudaSuccess;
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  current_device();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  synchronize_device(current_device());
  return set_last_error(device_error(current_device()));
}

cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  current_device();
  const bool known = std::strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(&get_context_state) : nullptr;
  if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) { return *can = device != peer, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return set_last_error(peer == current_device() || peer >= device_count() ? cudaErrorInvalidDevice : cudaSuccess);
}
cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "unknown error";
  }
}

}  // extern "C"
