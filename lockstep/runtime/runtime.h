// The runtime owns the devices, the engine, and the back ends; no other class knows them all. A program that needs more
// than the defaults makes one, and asks it for devices:
//
//   Runtime runtime({.devices = 2, .seed = 7});
//   std::vector<Device> devices = runtime.devices();
//
// Without one, default_runtime() is the process's: see default_runtime.h.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/tensor/dtype.h"

namespace LOCKSTEP_API lockstep {

class Engine;           // engine/engine.h
class LivingRuntime;    // runtime/living_runtimes.h
class ProcessRuntimes;  // runtime/default_runtime.cc
class RandomState;      // runtime/random_state.h
struct DeviceState;     // runtime/device_state.h

// The devices that a Runtime should have: a number, for that many GPUs, or CPU devices if there is no GPU (see
// find_devices); a list, as for Runtime::devices(): "cpu:0,cpu:1", "cuda:0"; or "auto", for all GPUs, or one CPU device
// if there is no GPU.
class WantedDevices {
 public:
  WantedDevices() = default;
  WantedDevices(int count) : count_(count), given_(true) {}                  // NOLINT(google-explicit-constructor)
  WantedDevices(std::string list) : list_(std::move(list)), given_(true) {}  // NOLINT(google-explicit-constructor)
  WantedDevices(const char* list) : WantedDevices(std::string(list)) {}      // NOLINT(google-explicit-constructor)

  bool given() const { return given_; }
  // 0 for a list.
  int count() const { return count_; }
  const std::string& list() const { return list_; }

 private:
  int count_ = 0;
  std::string list_;
  bool given_ = false;
};

struct RuntimeOptions {
  // Runtime::devices() is exactly these. Do not combine this with cpu_devices, cuda, or cuda_logical.
  WantedDevices devices = {};
  // Number of CPU devices, at least one. They split this process's cores evenly. If there are fewer cores than devices,
  // they share cores.
  int cpu_devices = 1;
  // Cores of one CPU device; 0: an equal part of all cores.
  int cores_per_device = 0;
  // T: number of threads that compute one shard. Not set: as many as the device has cores to spare, so that a single
  // shard uses all cores, and as many shards as cores use one core each. A number: a device of c cores has floor(c / T)
  // compute lanes, at least one; 0: all cores of a device. T affects the bits only for bf16, and only on CPUs that
  // multiply bf16 in hardware: if it is not set, one thread computes these products.
  std::optional<int> threads_per_shard = {};
  // For debugging: runs each task at once on the calling thread. Results are the same.
  bool serial = false;
  // Indices of the GPUs to use in addition to the CPU devices; see find_gpus().
  std::vector<int> cuda = {};
  // 0: each GPU is one device, "cuda:0". Otherwise the number of logical devices per GPU, "cuda:0/0", "cuda:0/1", and
  // so on. Each has its own queues and a share of the memory, so a program for several GPUs runs on a single GPU, with
  // the same bits. If `cuda` is empty, this means GPU 0.
  int cuda_logical = 0;
  // Bytes that one device on a GPU may use; 0: its share of the GPU's memory.
  std::size_t cuda_memory_limit = 0;
  // CPUs sum convolutions directly, never with Winograd's algorithm: slower, but closer to exact sums. Part of the
  // recipe that decides the bits.
  bool direct_conv = false;
  // GPUs multiply f32 in TF32, with 10 bits of mantissa.
  bool tf32 = false;
  // A file that names the fastest cuDNN and cuBLASLt algorithm for each problem. Missing entries are timed and added.
  // Part of the recipe that decides the bits. Empty: each library's first suggestion, which is the same in all runs.
  std::filesystem::path cuda_algorithms = {};
  // Computes with the reference kernels: every dtype, f64 arithmetic, slow.
  bool reference_backend = false;
  // The seed of dropout, rand, and randn. InitializeOptions, TrainerOptions, and the options of loaders and samplers
  // follow it unless they name a seed of their own. Unset: that of manual_seed(), or 0, and the draws continue after
  // those that the process has made without a Runtime.
  std::optional<std::uint64_t> seed = {};
  // Bytes that one CPU device may use; 0: as much as the other CPU devices leave. Together they may use the memory of
  // this process (the machine's, or its control group's limit), or this limit if it is larger.
  std::size_t memory_limit = 0;
  // When a wait takes this long, on_slow_wait is called with a report of the waiting tasks and what they wait for. 0:
  // never.
  std::chrono::nanoseconds slow_wait{0};
  std::function<void(std::chrono::nanoseconds waited, const std::string& report)> on_slow_wait = {};
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  // Waits for all work. It drops failures that no wait has thrown; call synchronize() before to see them.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The devices to train on: those of RuntimeOptions::devices; by default GPUs if there are any, otherwise CPU devices.
  const std::vector<Device>& devices() const { return devices_; }
  // For Job: devices() are these from now on.
  void train_on(std::vector<Device> devices) { devices_ = std::move(devices); }
  // Finds a device by name, "cpu:0". An unknown name is an Error that lists the existing ones.
  Device device(std::string_view name) const;
  // Finds the devices of a list, "cpu:0,cuda:0", or all devices of a kind, "cpu" or "cuda". Throws as device() does.
  std::vector<Device> devices(std::string_view list) const;

  // For the library's own code: the headers of these classes are not installed.
  Engine& engine() { return *engine_; }
  RandomState& random() { return *random_; }
  // T where it decides the bits: 1 if RuntimeOptions does not set it.
  int threads_per_shard() const { return threads_per_shard_; }
  MemoryCounters memory(Device device) const;

  // Returns the number of idle cores of devices() while this many shards, dealt out evenly, are in flight: all cores of
  // devices without a shard and, where T is fixed, those beyond T per shard. T is fixed if RuntimeOptions sets it, and
  // where it decides the bits. 0 for GPUs.
  int idle_cores(int shards, DType dtype = DType::f32) const;

  // Waits for everything. Throws the first failure that no wait has thrown yet.
  void synchronize();
  // Waits for the work of one device. It does not throw that work's failures: reading the data throws them, and so does
  // synchronize() without an argument.
  void synchronize(Device device);

 private:
  friend class ProcessRuntimes;
  // Makes the process's Runtime, which is not one of the program's own.
  Runtime(RuntimeOptions options, std::shared_ptr<RandomState> random);
  void add_gpus(const struct DeviceParts& parts);
  void choose(const WantedDevices& wanted);

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<RandomState> random_;
  std::vector<std::shared_ptr<DeviceState>> states_;
  std::vector<Device> devices_, all_devices_;
  int threads_per_shard_ = 1;
  bool fixed_threads_ = false;
  std::shared_ptr<const LivingRuntime> living_;
};

// "[cpu:0, cpu:1]"
std::string str(const std::vector<Device>& devices);

// Devices that a list or a number asks for.
struct DeviceList {
  int count = 0;
  // Options of a Runtime that has all the devices: cpu_devices, cuda, and cuda_logical are set.
  RuntimeOptions options;
  // GPUs that find_devices() left out, and why: "cuda:0 (Tesla T4) has compute capability 7.5, expected at least 8.0".
  std::vector<std::string> left_out = {};
};

// Parses a list of devices as users write it: "cpu:0,cpu:1", "cuda:0", "cpu:0,cuda:0/0,cuda:0/1". Throws Error if it
// cannot. The Runtime checks whether the GPUs exist.
DeviceList parse_device_list(std::string_view list);

// Returns `count` GPUs, or CPU devices if there is no GPU. If there are fewer GPUs than `count`, each is split into
// logical devices. CPU devices share the cores. A count of 0 means all GPUs, or one CPU device. The ranks of one host
// (LOCAL_RANK of LOCAL_WORLD_SIZE) divide its GPUs; if there are fewer GPUs than ranks, several ranks get the same one.
// Throws Error if CUDA fails although there is a GPU and a driver, so that a program never trains on the CPU by
// mistake: after fork(), with a driver that is too old, or with a GPU that does not answer.
DeviceList find_devices(int count = 0);

// The number of GPUs that this process can use: torch.cuda.device_count(). Throws as find_devices() does. If there are
// GPUs, this process must not fork() afterwards: spawn(fn) refuses to, spawn(argc, argv, …) works.
int device_count();
// torch.cuda.is_available(); throws as find_devices() does.
inline bool cuda_is_available() { return device_count() > 0; }

}  // namespace lockstep
