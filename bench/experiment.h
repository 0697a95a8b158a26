// An experiment on automatic parallelism. It times pieces of work alone and together, on the threaded engine and on the
// serial one, and checks that both give the same bits.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "lockstep/base/count_of.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/array.h"

namespace lockstep::app {

// Work that is split into units, so that several parts can be described in turns.
struct WorkPart {
  std::string name;
  int units = 0;
  std::function<void(int unit)> push;
};

struct Experiment {
  std::vector<WorkPart> parts;
  // The arrays that the parts write.
  std::function<std::vector<Array>()> results;
};

// Describes all units, with parts that take even turns, and waits for the end.
void run_parts(Runtime& runtime, const std::vector<WorkPart>& parts);

// Returns the SHA-256 of the results of one run of all parts together. The results start as zeros.
std::string digest_of(Runtime& runtime, const Experiment& experiment);

struct ExperimentOptions {
  std::string title;
  RuntimeOptions runtime;
  std::function<Experiment(Runtime&)> build;
  // File for the timeline of one more run, with all parts together on the threaded engine; none if empty.
  std::string trace = {};
};

// Prints one row per engine: the parts, their sum, the longest part, the time together, and the hidden share. Throws if
// the engines' results differ.
void run_experiment(const ExperimentOptions& options, const BenchOptions& common, Report& report);

// One of several ways to do the same work.
struct Variant {
  std::string name;
  RuntimeOptions runtime;
  std::function<Experiment(Runtime&)> build;
};

// Prints one row per variant: the time of all parts together, and the speedup over the first variant. Throws if results
// differ. `trace` shows the last variant.
void compare_variants(const std::string& title, const std::vector<Variant>& variants, const std::string& trace,
                      const BenchOptions& common, Report& report);

// Options of every experiment.
struct PlaceOptions {
  std::string devices = {};  // a list; empty: CPU devices, as many as the experiment needs
  int cores_per_device = 1;
  std::string trace = {};

  // Adds --devices, --cores-per-device, and --trace.
  void add_to(CLI::App& app);
};

// Where an experiment runs.
struct Place {
  RuntimeOptions runtime;
  std::string list;         // for Runtime::devices
  std::string title;        // "2 devices of 1 core"; "cuda:0/0,cuda:0/1"
  int cpus = 0, gpus = 0;   // devices of each kind
  bool shared_gpu = false;  // several devices share a GPU

  int count() const { return cpus + gpus; }
};

// `cpu_devices` is the default number of CPU devices. Throws UsageError for devices that do not exist.
Place place_of(const PlaceOptions& options, int cpu_devices);
// Throws UsageError unless the place has at least two devices. `what` names the experiment.
void check_two_devices(const Place& place, const std::string& what);

// Returns the number of cores that this process may use.
int core_count();

}  // namespace lockstep::app
