// An experiment on automatic parallelism: pieces of work timed alone and together, on the threaded engine and on the
// serial one, which do the same to the bit.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "bench_support.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::app {

// Work that is described unit by unit, so that parts can be described in turn.
struct Part {
  std::string name;
  int units = 0;
  std::function<void(int unit)> push;
};

struct Experiment {
  std::vector<Part> parts;
  // What the parts write.
  std::function<std::vector<Tensor>()> results;
};

// Describes all units, those of several parts in turn and evenly, and waits for the end.
void run_parts(Runtime& runtime, const std::vector<Part>& parts);

// SHA-256 of the results of one run of all parts together, which starts with results of zeros.
std::string digest_of(Runtime& runtime, const Experiment& experiment);

struct ExperimentOptions {
  std::string title;
  RuntimeOptions runtime;
  std::function<Experiment(Runtime&)> build;
  // A file that gets the timeline of one more run, all parts together on the threaded engine; none if empty.
  std::string trace = {};
};

// Prints a row an engine: the parts, their sum, the longest, the time together, and what of it was hidden. Throws if the
// engines' results differ.
void run_experiment(const ExperimentOptions& options, const BenchOptions& common, Report& report);

// One of several ways to do the same work.
struct Variant {
  std::string name;
  RuntimeOptions runtime;
  std::function<Experiment(Runtime&)> build;
};

// Prints a row a variant: the time of all parts together, and how many times faster than the first one it is. Throws if
// results differ. `trace` is of the last variant.
void compare_variants(const std::string& title, const std::vector<Variant>& variants,
                      const std::string& trace, const BenchOptions& common, Report& report);

// --trace and --cores-per-device, as every experiment has them.
void add_experiment_options(CLI::App& app, std::string& trace, int& cores_per_device);

// How many cores this process may use.
int core_count();
// Throws UsageError for devices that are larger.
void check_cores(int cores_per_device);

// "1 core", "2 cores"
std::string count_of(int n, const std::string& what);

}  // namespace lockstep::app
