// Options that all examples share.
#pragma once

#include <fmt/core.h>
#include <lockstep/runtime/device_list.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

struct DeviceOptions {
  int num_devices = 2;
  std::string list;

  void add_to(CLI::App& app) {
    auto* number = app.add_option("--num-devices", num_devices, "N devices: of a GPU or, without one, of the CPU");
    number->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--devices", list, "Instead: cpu:0,cpu:1 or cuda:0,cuda:1 or cuda:0/0,cuda:0/1")->excludes(number);
  }

  // As many devices as the options ask for.
  lockstep::RuntimeOptions runtime() const {
    return list.empty() ? lockstep::find_devices(num_devices).options : lockstep::parse_device_list(list).options;
  }

  // Those that the options name; an unknown one is an Error.
  std::vector<lockstep::Device> select(const lockstep::Runtime& runtime) const {
    if (!list.empty()) return runtime.devices(list);
    std::vector<lockstep::Device> devices = runtime.devices();
    devices.resize(static_cast<std::size_t>(num_devices));
    return devices;
  }
};
