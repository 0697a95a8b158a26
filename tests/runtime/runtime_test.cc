#include "lockstep/runtime/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "lockstep/autograd/functions.h"
#include "lockstep/device/topology.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

TEST(Runtime, DevicesHaveNames) {
  Runtime runtime({.cpu_devices = 3});
  EXPECT_EQ(str(runtime.devices()), "[cpu:0, cpu:1, cpu:2]");
  EXPECT_EQ(runtime.device("cpu:2"), runtime.devices()[2]);
  EXPECT_EQ(runtime.devices("cpu"), runtime.devices());
  EXPECT_EQ(str(runtime.devices("cpu:2,cpu:0")), "[cpu:2, cpu:0]");
  EXPECT_ERROR(runtime.device("cuda:0"), "unknown device 'cuda:0': expected one of [cpu:0, cpu:1, cpu:2]");
  EXPECT_ERROR(runtime.devices("cpu:0,"), "unknown device '': expected one of [cpu:0");
  EXPECT_ERROR(runtime.devices("cpu:1,cpu:1"), "device cpu:1 is listed twice");
}

TEST(Runtime, WrongOptionsAreErrors) {
  EXPECT_ERROR(Runtime({.cpu_devices = 0}), "runtime: 0 CPU devices, expected 1 to 1024");
  EXPECT_ERROR(Runtime({.threads_per_shard = -1}), "runtime: -1 threads per shard");
}

TEST(Runtime, DevicesAreThoseThatWereAskedFor) {
  EXPECT_EQ(Runtime({.devices = 3}).devices().size(), 3U);
  EXPECT_EQ(str(Runtime({.devices = "cpu:2,cpu:0"}).devices()), "[cpu:2, cpu:0]");
  EXPECT_EQ(Runtime({.devices = "auto"}).devices().size(), static_cast<std::size_t>(find_devices().count));
  Runtime chosen({.devices = "cpu:1"});
  EXPECT_EQ(str(chosen.devices()), "[cpu:1]");
  EXPECT_EQ(str(chosen.devices("cpu")), "[cpu:0, cpu:1]");
  EXPECT_ERROR(Runtime({.devices = 0}), "runtime: 0 devices, expected 1 to 1024");
  EXPECT_ERROR(Runtime({.devices = "gpu:0"}), "unknown device 'gpu:0'");
  EXPECT_ERROR(Runtime({.devices = 2, .cpu_devices = 2}), "expected `devices` alone");
  EXPECT_EQ(cuda_is_available(), device_count() > 0);
}

TEST(Runtime, OneDeviceIsWaitedFor) {
  Runtime runtime({.devices = 2, .cores_per_device = 1});
  std::promise<void> gate;
  Engine& engine = runtime.engine();
  const auto push = [&](int number, auto run) {
    const Device device = runtime.devices()[static_cast<std::size_t>(number)];
    engine.push({.name = "task", .lane = state_of(device, "test").urgent_lane, .run = run});
  };
  push(1, [&](const TaskContext&) { gate.get_future().wait(); });
  std::atomic<bool> done = false;
  push(0, [&](const TaskContext&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  runtime.synchronize(runtime.devices()[0]);  // not for the other device, which waits for us
  EXPECT_TRUE(done);
  gate.set_value();
  runtime.synchronize();
  push(0, [](const TaskContext&) { fail("broken"); });
  runtime.synchronize(runtime.devices()[0]);
  EXPECT_THROW(runtime.synchronize(), TaskError);
  EXPECT_ERROR(runtime.synchronize(kHost), "synchronize: the tensor is in host memory");
}

// More devices than any laptop has cores, each with its own memory and all of them at work.
TEST(Runtime, MayHaveMoreDevicesThanCores) {
  Runtime runtime({.cpu_devices = 32, .cores_per_device = 1});
  std::vector<Tensor> results;
  for (Device device : runtime.devices()) {
    results.push_back(Tensor::from<float>({static_cast<float>(device.index())}, {1}).to(device) * 2);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].item<float>(), 2.0F * static_cast<float>(i));
    EXPECT_GT(runtime.memory(runtime.devices()[i]).used_bytes, 0U);
  }
}

TEST(Runtime, LanesFollowFromCoresAndThreads) {
  Runtime one({.cores_per_device = 1, .threads_per_shard = 1});
  EXPECT_EQ(state_of(one.devices()[0], "test").compute_lanes.size(), 1U);
  EXPECT_EQ(one.threads_per_shard(), 1);
  // More threads than cores: one lane all the same.
  Runtime wide({.cores_per_device = 1, .threads_per_shard = 3});
  DeviceState& state = state_of(wide.devices()[0], "test");
  EXPECT_EQ(state.compute_lanes.size(), 1U);
  EXPECT_EQ(state.contexts[0]->threads, 3);
  EXPECT_EQ(state.compute_lane(-1), state.compute_lane(5));
}

// The lanes of a device share its cores, whatever the number of shards.
TEST(Runtime, UsesAllCoresByDefault) {
  const Runtime runtime;
  const DeviceState& state = state_of(runtime.devices()[0], "test");
  const auto cores = static_cast<int>(state.cpus.size());
  EXPECT_EQ(static_cast<int>(state.compute_lanes.size()), cores);
  EXPECT_EQ(state.helpers != nullptr, cores > 1);
  EXPECT_EQ(runtime.threads_per_shard(), 1);  // where it decides the bits
  EXPECT_EQ(runtime.idle_cores(1), 0);
  EXPECT_EQ(runtime.idle_cores(cores, DType::bf16), 0);
  EXPECT_EQ(runtime.idle_cores(0), cores);
}

TEST(Runtime, TellsIdleCores) {
  const Runtime one({.cpu_devices = 2, .cores_per_device = 1});
  EXPECT_EQ(one.idle_cores(1), 1);  // a device without a shard
  EXPECT_EQ(one.idle_cores(2), 0);
  const Runtime fixed({.threads_per_shard = 1});
  const auto cores = static_cast<int>(state_of(fixed.devices()[0], "test").cpus.size());
  EXPECT_EQ(fixed.idle_cores(1), cores - 1);
}

// As many threads compute a task as the device has cores to spare, without a change of the bits.
TEST(Runtime, ThreadsChangeNoBits) {
  const std::vector<float> a = Random(1).floats({300, 200}).to_vector<float>();
  std::vector<std::vector<float>> results;
  for (const std::optional<int> threads : {std::optional<int>(), std::optional(1), std::optional(0)}) {
    Runtime runtime({.threads_per_shard = threads});
    const Tensor x = Tensor::from(a, {300, 200}).to(runtime.devices()[0]);
    results.push_back(softmax(matmul(x, transpose(x))).to_vector<float>());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// A small net's gradients, step by step, on two devices.
std::vector<double> some_work(RuntimeOptions options) {
  options.cpu_devices = 2;
  options.cores_per_device = 1;
  options.threads_per_shard = 1;
  Runtime runtime(options);
  std::vector<double> all;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Device device = runtime.devices()[i % 2];
    Tensor x = Tensor(Random(i).floats({8, 16})).to(device), w = Tensor(Random(i + 100).floats({4, 16})).to(device);
    w.set_requires_grad(true);
    sum(square(dropout(softmax(linear(x, w)), 0.5))).backward();
    for (double g : values(w.grad())) all.push_back(g);
  }
  return all;
}

TEST(Runtime, SerialEqualsThreaded) {
  auto expected = some_work({.seed = 4});
  EXPECT_EQ(some_work({.serial = true, .seed = 4}), expected);
  EXPECT_NE(some_work({.serial = true, .seed = 5}), expected);
}

TEST(Runtime, MemoryLimitsAreKept) {
  Runtime runtime({.memory_limit = 1 << 20});
  Device device = runtime.devices()[0];
  EXPECT_ERROR(Tensor::host({1 << 20}).to(device), "cpu:0: out of memory: 4194304 bytes requested");
  EXPECT_EQ(Tensor::host({1 << 10}).to(device).numel(), 1 << 10);
}

// Each may have most of it, both together no more than there is. Nothing of it is touched.
TEST(Runtime, CpuDevicesShareTheMemoryThatThereIs) {
  Runtime runtime({.cpu_devices = 2});
  const Device first = runtime.devices()[0], second = runtime.devices()[1];
  const Shape most{static_cast<std::int64_t>(total_memory() / 10 * 6)};
  Tensor x = ops::empty(most, DType::u8, first);
  EXPECT_ERROR(ops::empty(most, DType::u8, second),
               "cpu:1: out of memory: " + std::to_string(most.numel()) + " bytes requested");
  // Memory that the first one keeps for later goes to the one that needs it now.
  x = {};
  EXPECT_GT(runtime.memory(first).cached_bytes(), 0U);
  x = ops::empty(most, DType::u8, second);
  EXPECT_EQ(runtime.memory(first).reserved_bytes, 0U);
}

TEST(Runtime, AnExplicitLimitIsThatOfEachDevice) {
  Runtime runtime({.cpu_devices = 2, .memory_limit = 1 << 20});
  for (const Device device : runtime.devices()) {
    EXPECT_EQ(ops::empty({1 << 19}, DType::u8, device).numel(), 1 << 19);
    EXPECT_ERROR(ops::empty({1 << 21}, DType::u8, device),
                 fmt::format("{}: out of memory: 2097152 bytes requested", device.name()));
  }
}

TEST(Runtime, SynchronizeShowsWhatNobodyWaitedFor) {
  Runtime runtime;
  Array x = ops::to_device(Array::host({2, 2}), runtime.devices()[0]);
  ops::launch("bad kernel", {}, {x}, [](Backend&, KernelContext&) { fail("it broke"); });
  EXPECT_ERROR(runtime.synchronize(), "it broke");
  runtime.synchronize();
}

// Tensors keep alive what they need of their device.
TEST(Runtime, MayGoBeforeItsTensors) {
  Tensor y, host;
  {
    Runtime runtime({.cpu_devices = 2});
    Tensor x = Tensor::from<float>({1, 2, 3}, {3}).to(runtime.devices()[0]).to(runtime.devices()[1]);
    y = x * 2;
    host = y.to(Device(), {.non_blocking = true});
  }
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(host.to_vector<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ((y + 1).to_vector<float>(), (std::vector<float>{3, 5, 7}));
  EXPECT_EQ(y.device().name(), "cpu:1");
}

TEST(Runtime, RuntimesAreApart) {
  Runtime a, b;
  Tensor x = Tensor::from<float>({1}, {1}).to(a.devices()[0]);
  Tensor y = Tensor::from<float>({2}, {1}).to(b.devices()[0]);
  EXPECT_NE(a.devices()[0], b.devices()[0]);
  EXPECT_ERROR(x + y, "an input is on cpu:0 of another Runtime, expected it on cpu:0");
  // By way of the host they may meet.
  EXPECT_EQ((x + y.to(Device()).to(a.devices()[0])).item<float>(), 3);
}

}  // namespace
}  // namespace lockstep::testing
