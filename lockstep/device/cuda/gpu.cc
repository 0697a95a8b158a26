#include "lockstep/device/gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "lockstep/base/fork_guard.h"
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

// Oldest major compute capability: kernels use instructions that older GPUs lack.
constexpr int kOldestMajor = 8;

std::string describe(cudaError_t status) {
  std::string what = fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
  int driver = 0;
  if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess) {
    const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
    what += driver == 0 ? std::string(": there is no driver")
                        : fmt::format(": the driver supports CUDA {}, Lockstep was built with CUDA {}", version(driver),
                                      version(CUDART_VERSION));
  }
  return what;
}

// Whether the status says that this machine has no GPU or no driver. Any other failure is reported.
bool means_no_gpu(cudaError_t status) {
  if (status == cudaErrorNoDevice) return true;
  int driver = 0;
  return status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
}

}  // namespace

GpuList find_gpus() {
  GpuList list;
  if (is_broken_by_fork()) {
    list.failed = true;
    list.why_none =
        "this process was forked from one that had called CUDA, which does not survive fork(): fork first, or use "
        "spawn(argc, argv, …), which runs the program again";
    return list;
  }
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) note_broken_by_fork("CUDA");
  // Called once for all GPUs, because it inspects the whole machine, which takes seconds on a busy one.
  const std::vector<int> usable = status == cudaSuccess && count > 0 ? available_cpus() : std::vector<int>();
  for (int i = 0; status == cudaSuccess && i < count; ++i) {
    cudaDeviceProp properties;
    status = cudaGetDeviceProperties(&properties, i);
    if (status != cudaSuccess) break;
    if (properties.major < kOldestMajor) {
      list.left_out.push_back({i, fmt::format("cuda:{} ({}) has compute capability {}.{}, expected at least {}.0", i,
                                              properties.name, properties.major, properties.minor, kOldestMajor)});
      continue;
    }
    std::string uuid;
    for (char byte : properties.uuid.bytes) uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    list.gpus.push_back({i, properties.name, properties.totalGlobalMem, uuid, cpus_near(i, usable)});
  }
  if (status != cudaSuccess) {
    cudaGetLastError();
    list.gpus.clear();
    list.left_out.clear();
    list.failed = !means_no_gpu(status);
    list.why_none = describe(status);
  } else if (list.gpus.empty()) {
    for (const UnusableGpu& gpu : list.left_out) list.why_none += (list.why_none.empty() ? "" : "; ") + gpu.why;
    if (list.left_out.empty()) list.why_none = "there is none";
  }
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
    if (status == cudaErrorPeerAccessAlreadyEnabled || status == cudaErrorTooManyPeers) {
      cudaGetLastError();
      if (status == cudaErrorTooManyPeers) return false;
    } else {
      check_cuda(status, "cudaDeviceEnablePeerAccess");
    }
  }
  return true;
}

std::shared_ptr<Stream> make_gpu_stream(int gpu, bool urgent) { return std::make_shared<CudaStream>(gpu, urgent); }

}  // namespace lockstep
