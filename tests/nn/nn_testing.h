// Shared by the tests of modules: batches of shards, and small nets.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/nn/module.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {

// x cut into shards of these sizes, in runs on the devices.
inline Tensor make_batch(const Tensor& x, const std::vector<std::int64_t>& counts, const std::vector<Device>& devices) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    slots.push_back({static_cast<int>(i), devices[i * devices.size() / counts.size()]});
  }
  return scatter(x, std::make_shared<Placement>(counts, slots));
}

// Many logical devices of one core and one thread.
inline RuntimeOptions small_devices(int n) { return {.cpu_devices = n, .cores_per_device = 1, .threads_per_shard = 1}; }

// All replicas' values.
inline std::vector<std::vector<float>> replicas(const Parameter& p) {
  std::vector<std::vector<float>> all;
  for (Device device : p.devices()) all.push_back(p.data(device).to_vector<float>());
  return all;
}

inline std::vector<std::string> names(const std::vector<std::pair<std::string, Parameter>>& parameters) {
  std::vector<std::string> all;
  for (const auto& [name, parameter] : parameters) all.push_back(name);
  return all;
}

}  // namespace lockstep::testing
