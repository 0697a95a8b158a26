// The CUDA runtime's functions for devices and errors.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

namespace {

constexpr std::size_t kMostDevices = 16;

thread_local int device_of_thread = 0;
std::array<std::atomic<bool>, kMostDevices> contexts{};
// The process that called CUDA first.
std::atomic<pid_t> process = 0;
// Whether the first device may access the memory of the second.
std::array<std::array<std::atomic<bool>, kMostDevices>, kMostDevices> peers{};

std::atomic<bool>& peer_access(int device, int peer) {
  return peers.at(static_cast<std::size_t>(device)).at(static_cast<std::size_t>(peer));
}

void note_process() {
  pid_t none = 0;
  process.compare_exchange_strong(none, ::getpid());
}

// A number from the environment, read at each call so that tests can set it.
int setting(const char* name, int standard) {
  const char* set = std::getenv(name);
  return set ? std::atoi(set) : standard;
}

// LOCKSTEP_EMULATED_PEERS names the pairs of devices that can be connected: "0-1,1-2". All can by default.
bool can_access(int device, int peer) {
  const char* set = std::getenv("LOCKSTEP_EMULATED_PEERS");
  if (!set || device == peer) return device != peer;
  const std::string pairs = "," + std::string(set) + ",";
  const auto has = [&](int a, int b) {
    return pairs.find("," + std::to_string(a) + "-" + std::to_string(b) + ",") != std::string::npos;
  };
  return has(device, peer) || has(peer, device);
}

// LOCKSTEP_EMULATED_CAPABILITY has the compute capabilities of the devices, "9.0,7.5"; the last one counts for the
// rest.
std::pair<int, int> capability(int device) {
  const char* set = std::getenv("LOCKSTEP_EMULATED_CAPABILITY");
  std::string list = set ? set : "9.0";
  for (std::size_t comma; device > 0 && (comma = list.find(',')) != std::string::npos; --device)
    list.erase(0, comma + 1);
  return {std::atoi(list.c_str()), std::atoi(list.c_str() + list.find('.') + 1)};
}

}  // namespace

bool cuda_emulator::forked() { return process != 0 && process != ::getpid(); }
int cuda_emulator::current_device() {
  note_process();
  contexts.at(static_cast<std::size_t>(device_of_thread)) = true;
  return device_of_thread;
}
bool cuda_emulator::has_context(int device) { return contexts.at(static_cast<std::size_t>(device)); }
void cuda_emulator::forget_contexts() {
  for (auto& context : contexts) context = false;
}
bool cuda_emulator::reaches(int device, int owner) { return device == owner || peer_access(device, owner); }
void cuda_emulator::forget_peers() {
  for (auto& row : peers) {
    for (auto& access : row) access = false;
  }
}
bool cuda_emulator::runs_kernels(int device) { return capability(device).first >= 8; }

namespace {

CUresult get_context_state(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = has_context(device);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// LOCKSTEP_EMULATED_DRIVER is the driver's version of CUDA, 12040; 0: there is no driver.
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = setting("LOCKSTEP_EMULATED_DRIVER", CUDART_VERSION), cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

// LOCKSTEP_EMULATED_STATUS is what the driver answers: 802 is cudaErrorSystemNotReady.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (forked()) return set_last_error(cudaErrorInitializationError);
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver / 1000 < CUDART_VERSION / 1000) return set_last_error(cudaErrorInsufficientDriver);
  if (const int status = setting("LOCKSTEP_EMULATED_STATUS", 0))
    return set_last_error(static_cast<cudaError_t>(status));
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  note_process();
  *count = device_count();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (forked()) return set_last_error(cudaErrorInitializationError);
  if (device < 0 || device >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  device_of_thread = device;
  current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) { return *device = device_of_thread, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (forked()) return set_last_error(cudaErrorInitializationError);
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
  std::tie(properties->major, properties->minor) = capability(device);
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

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return *can = can_access(device, peer), cudaSuccess;
}

// LOCKSTEP_EMULATED_MOST_PEERS limits the peers of a device.
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const int device = current_device();
  if (peer == device || peer < 0 || peer >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  if (!can_access(device, peer)) return set_last_error(cudaErrorPeerAccessUnsupported);
  if (peer_access(device, peer)) return set_last_error(cudaErrorPeerAccessAlreadyEnabled);
  int enabled = 0;
  for (int other = 0; other < device_count(); ++other) enabled += peer_access(device, other);
  if (enabled >= setting("LOCKSTEP_EMULATED_MOST_PEERS", 8)) return set_last_error(cudaErrorTooManyPeers);
  peer_access(device, peer) = true;
  return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (peer < 0 || peer >= device_count()) return set_last_error(cudaErrorInvalidDevice);
  const bool enabled = peer_access(current_device(), peer).exchange(false);
  return set_last_error(enabled ? cudaSuccess : cudaErrorPeerAccessNotEnabled);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorSystemNotReady: return "cudaErrorSystemNotReady";
    case cudaErrorNoKernelImageForDevice: return "cudaErrorNoKernelImageForDevice";
    case cudaErrorPeerAccessUnsupported: return "cudaErrorPeerAccessUnsupported";
    case cudaErrorTooManyPeers: return "cudaErrorTooManyPeers";
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
    case cudaErrorInitializationError: return "initialization error";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorSystemNotReady: return "system not yet initialized";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorPeerAccessUnsupported: return "peer access is not supported between these two devices";
    case cudaErrorTooManyPeers: return "peer mapping resources exhausted";
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
