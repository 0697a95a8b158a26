// Options that all examples share.
#pragma once

#include <fmt/core.h>
#include <lockstep/runtime/runtime.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

struct DeviceOptions {
  int num_devices = 2;
  std::string list;

  void add_to(CLI::App& app) {
    auto* number =
        app.add_option("--num-devices", num_devices, "N CPU devices, which share the cores evenly");
    number->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--devices", list, "Instead: cpu:0,cpu:1")->excludes(number);
  }

  // As many devices as the options ask for.
  lockstep::RuntimeOptions runtime() const {
    int count = num_devices;
    if (!list.empty()) {
      count = 1;
      for (const std::string& name : CLI::detail::split(list, ',')) {
        int index = 0;
        if (std::sscanf(name.c_str(), "cpu:%d", &index) == 1) count = std::max(count, index + 1);
      }
    }
    return {.cpu_devices = count};
  }

  // Those that the options name; an unknown one is an Error.
  std::vector<lockstep::Device> select(const lockstep::Runtime& runtime) const {
    return list.empty() ? runtime.devices() : runtime.devices(list);
  }
};
