#include "lockstep/device/gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "lockstep/device/cuda/cuda_status.h"
#include "lockstep/device/cuda/cuda_stream.h"
#include "lockstep/device/topology.h"

namespace lockstep {
namespace {

// "0-3,8,10-11"
std::vector<int> parse_cpu_list(std::string_view list) {
  std::vector<int> cpus;
  auto number = [&] {
    int n = 0;
    while (!list.empty() && std::isdigit(static_cast<unsigned char>(list[0]))) {
      n = 10 * n + (list[0] - '0');
      list.remove_prefix(1);
    }
    return n;
  };
  while (!list.empty() && std::isdigit(static_cast<unsigned char>(list[0]))) {
    const int first = number();
    int last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = number();
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (list.starts_with(',')) list.remove_prefix(1);
  }
  return cpus;
}

// Returns the CPUs of `usable` near the GPU, or all of `usable` if that is unknown.
std::vector<int> cpus_near(int gpu, const std::vector<int>& usable) {
  char bus[32] = "";
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, gpu) != cudaSuccess) {
    cudaGetLastError();
    return usable;
  }
  std::string id = bus;
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string list;
  std::getline(std::ifstream("/sys/bus/pci/devices/" + id + "/local_cpulist"), list);
  const std::vector<int> near = parse_cpu_list(list);
  std::vector<int> both;
  std::ranges::copy_if(usable, std::back_inserter(both),
                       [&](int cpu) { return std::ranges::find(near, cpu) != near.end(); });
  return both.empty() ? usable : both;
}

}  // namespace

GpuList find_gpus() {
  GpuList list;
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  // Called once: it inspects the whole machine, which takes seconds on a busy one.
  const std::vector<int> usable = status == cudaSuccess && count > 0 ? available_cpus() : std::vector<int>();
  for (int i = 0; status == cudaSuccess && i < count; ++i) {
    cudaDeviceProp properties;
    status = cudaGetDeviceProperties(&properties, i);
    if (status != cudaSuccess) break;
    std::string uuid;
    for (char byte : properties.uuid.bytes) uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    list.gpus.push_back({i, properties.name, properties.totalGlobalMem, uuid, cpus_near(i, usable)});
  }
  if (status != cudaSuccess) {
    cudaGetLastError();
    list.gpus.clear();
  }
  if (list.gpus.empty()) list.why_none = status == cudaSuccess ? "there is none" : cudaGetErrorString(status);
  return list;
}

bool connect_gpus(int a, int b) {
  if (a == b) return true;
  for (auto [reader, other] : {std::pair(a, b), std::pair(b, a)}) {
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, reader, other), "cudaDeviceCanAccessPeer");
    if (!can) return false;
  }
  for (auto [reader, other] : {std::pair(a, b), std::pair(b, a)}) {
    GpuScope scope(reader);
    const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      check_cuda(status, "cudaDeviceEnablePeerAccess");
    }
  }
  return true;
}

std::shared_ptr<Stream> make_gpu_stream(int gpu, bool urgent) { return std::make_shared<CudaStream>(gpu, urgent); }

}  // namespace lockstep
