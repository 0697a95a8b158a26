// Options that all examples share.
#pragma once

#include <fmt/core.h>
#include <lockstep/runtime/runtime.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

// Parses the arguments, runs the program, and returns its exit status: 2 for invalid arguments, 1 for an error.
template <typename Program>
int run_example(CLI::App& app, int argc, char** argv, Program program) {
  app.name(std::filesystem::path(argv[0]).filename());
  try {
    app.parse(argc, argv);
    program();
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "{}: {} (see --help)\n", app.get_name(), error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
    return 1;
  }
}

struct DeviceOptions {
  int num_devices = 2;
  std::string list;

  void add_to(CLI::App& app, const std::string& number_names = "--num-devices",
              const std::string& number_help = "Number of devices: GPUs, or CPU devices if there is no GPU") {
    auto* number = app.add_option(number_names, num_devices, number_help);
    number->check(CLI::Range(1, 1024))->capture_default_str();
    app.add_option("--devices", list, "Instead: cpu:0,cpu:1 or cuda:0,cuda:1 or cuda:0/0,cuda:0/1")
        ->excludes(number)
        ->check(&unknown_device);
  }

  // The error in a list, or "" if it is valid.
  static std::string unknown_device(const std::string& list) try {
    lockstep::parse_device_list(list);
    return "";
  } catch (const lockstep::Error& error) {
    return error.what();
  }

  // As many devices as the options ask for. All cores of a device compute its one shard.
  lockstep::RuntimeOptions runtime() const {
    using lockstep::WantedDevices;
    return {.devices = list.empty() ? WantedDevices(num_devices) : WantedDevices(list)};
  }
};
