// The Runtime of programs that do not name one. Whatever needs a device, such as a model or devices(), asks here.
//
//   Tensor x = randn({64, 784}).to(devices()[0]);  // all GPUs, or one CPU device with all cores
//
// The default is the program's own Runtime while one lives, including a Job's. Otherwise it is the process's Runtime,
// which is made at the first request, has the default options, and lives until the program exits. Its devices are those
// of devices(wanted), else of the environment variable LOCKSTEP_DEVICES (a number or a list), else all GPUs, else one
// CPU device.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

// Throws if the program has several Runtimes (name the devices then), and while the program exits.
//
// At exit, the process's Runtime waits for its work. A failure that no wait has thrown is then written to stderr,
// because nothing is left that could read it. Tensors with static storage survive the Runtime. A process that has this
// Runtime has threads, so spawn(fn) refuses to fork it.
Runtime& default_runtime();

// The devices of default_runtime().
std::vector<Device> devices();
// Returns the device of that name, such as "cpu:0". Throws if default_runtime() has no such device.
Device device(std::string_view name);
// Returns devices(). If there is no Runtime yet, makes the process's with these devices: a number of GPUs, or of CPU
// devices if there is no GPU (see find_devices), or a list, "cpu:0,cpu:1". Throws if the default Runtime has other
// devices, because the first request decides.
std::vector<Device> devices(const WantedDevices& wanted);

// Waits for all work of default_runtime(), as torch.cuda.synchronize() does. Throws the first failure that no wait has
// thrown yet.
void synchronize();

// torch.manual_seed(). Every Runtime of the process, and those made later without a seed of their own, draw from now on
// what a program with this seed draws at its start: initial weights of models that are made from now on, the order of
// the data, dropout, rand, and randn. In a thread other than the main thread, the seed is for this thread alone, until
// it makes a Runtime with a seed, so that threads which train models of their own, as in a sweep, are independent.
void manual_seed(std::uint64_t seed);

}  // namespace lockstep
