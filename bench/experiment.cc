#include "bench/experiment.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <sstream>

#include "apps/lockstep/options/common_options.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/device/topology.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep::app {
namespace {

// Writes the timeline of a run of all parts, for Perfetto.
void write_timeline(const std::string& file, Runtime& runtime, const std::vector<WorkPart>& parts) {
  if (file.empty()) return;
  const auto trace = std::make_shared<Trace>();
  runtime.engine().set_trace(trace);
  run_parts(runtime, parts);
  runtime.engine().set_trace(nullptr);
  std::ostringstream json;
  trace->write_json(json);
  write_file_atomically(file, json.str());
}

struct EngineRun {
  std::vector<Timing> timings;  // of each part, and of all together
  std::string digest;
};

EngineRun run_on(RuntimeOptions runtime_options, bool serial, int rounds, const ExperimentOptions& options,
                 std::vector<std::string>& names) {
  runtime_options.serial = serial;
  Runtime runtime(runtime_options);
  const Experiment experiment = options.build(runtime);
  std::vector<std::function<void()>> runs;
  names.clear();
  for (const WorkPart& part : experiment.parts) {
    names.push_back(part.name);
    runs.push_back([&runtime, &part] { run_parts(runtime, {part}); });
  }
  runs.push_back([&] { run_parts(runtime, experiment.parts); });
  EngineRun run;
  run.timings = time_in_rounds(rounds, runs);
  run.digest = digest_of(runtime, experiment);
  if (!serial) write_timeline(options.trace, runtime, experiment.parts);
  return run;
}

}  // namespace

void run_parts(Runtime& runtime, const std::vector<WorkPart>& parts) {
  int most = 0;
  for (const WorkPart& part : parts) most = std::max(most, part.units);
  std::vector<int> pushed(parts.size());
  for (std::int64_t turn = 1; turn <= most; ++turn) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      while (pushed[i] < turn * parts[i].units / most) parts[i].push(pushed[i]++);
    }
  }
  runtime.synchronize();
}

std::string digest_of(Runtime& runtime, const Experiment& experiment) {
  for (const Array& t : experiment.results()) {
    t.wait();
    // Clears it on its device's lane, or directly if it is in host memory.
    if (t.device().is_host()) {
      std::fill_n(static_cast<std::byte*>(t.view().data), t.view().bytes(), std::byte{0});
    } else {
      ops::fill_(t, 0);
    }
  }
  run_parts(runtime, experiment.parts);
  Sha256 hash;
  for (const Array& t : experiment.results()) {
    t.wait();
    const Array host = ops::to_device(t, kHost);
    hash.update(std::span(static_cast<const std::byte*>(host.view().data), host.view().bytes()));
  }
  return hash.hex();
}

void run_experiment(const ExperimentOptions& options, const BenchOptions& common, Report& report) {
  report.begin();
  std::vector<std::string> names;
  const EngineRun threaded = run_on(options.runtime, false, common.rounds, options, names);
  const EngineRun serial = run_on(options.runtime, true, common.rounds, options, names);
  check(threaded.digest == serial.digest, "{}: the results {} differ from those of the serial engine, {}",
        options.title, threaded.digest, serial.digest);

  std::vector<std::string> headings{"engine"};
  for (const std::string& name : names) headings.push_back(name + " ms");
  for (const char* heading : {"sum ms", "longest ms", "together ms", "together / longest", "hidden"}) {
    headings.push_back(heading);
  }
  std::vector<std::vector<Cell>> rows;
  for (const auto& [engine, run] : {std::pair("threaded", threaded), std::pair("serial", serial)}) {
    std::vector<double> parts;
    for (const Timing& t : run.timings) parts.push_back(t.median_ms());
    const double together = parts.back();
    parts.pop_back();
    std::vector<Cell> row{engine};
    for (const double part : parts) row.emplace_back(part, 1);
    const double longest = std::ranges::max(parts);
    row.emplace_back(std::accumulate(parts.begin(), parts.end(), 0.0), 1);
    row.emplace_back(longest, 1);
    row.emplace_back(together, 1);
    row.emplace_back(together / longest, 3);
    row.emplace_back(hidden(parts, together), 2);
    rows.push_back(std::move(row));
    report.timings(fmt::format("{}: {}", options.title, engine), run.timings);
  }
  report.table(options.title, headings, rows);
}

void compare_variants(const std::string& title, const std::vector<Variant>& variants, const std::string& trace,
                      const BenchOptions& common, Report& report) {
  report.begin();
  // Times all variants together, so that rounds alternate.
  std::vector<std::unique_ptr<Runtime>> runtimes;
  std::vector<Experiment> experiments;
  std::vector<std::function<void()>> runs;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    runtimes.push_back(std::make_unique<Runtime>(variants[i].runtime));
    experiments.push_back(variants[i].build(*runtimes[i]));
    runs.push_back([&, i] { run_parts(*runtimes[i], experiments[i].parts); });
  }
  const std::vector<Timing> timings = time_in_rounds(common.rounds, runs);
  report.timings(title, timings);
  std::vector<std::vector<Cell>> rows;
  const std::string expected = digest_of(*runtimes[0], experiments[0]);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const std::string digest = digest_of(*runtimes[i], experiments[i]);
    check(digest == expected, "{}: the results of {}, {}, differ from those of {}, {}", title, variants[i].name, digest,
          variants[0].name, expected);
    const double ms = timings[i].median_ms();
    rows.push_back({variants[i].name, {ms, 1}, {timings[0].median_ms() / ms, 2}});
  }
  report.table(title, {"engine", "ms", "speed-up"}, rows);
  write_timeline(trace, *runtimes.back(), experiments.back().parts);
}

void PlaceOptions::add_to(CLI::App& app) {
  app.add_option("--devices", devices, "A list of devices, such as cuda:0/0,cuda:0/1 or cpu:0,cuda:0 [CPU devices]");
  app.add_option("--cores-per-device", cores_per_device, "Cores per CPU device")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--trace", trace,
                 "Write the timeline of one more run to this file, in Chrome's trace-event format, for Perfetto");
}

Place place_of(const PlaceOptions& o, int cpu_devices) {
  if (o.cores_per_device > core_count()) {
    throw UsageError(fmt::format("--cores-per-device {}: this process may use {}", o.cores_per_device,
                                 count_of(core_count(), "core")));
  }
  Place place{.runtime = {.cpu_devices = cpu_devices}, .list = "cpu", .cpus = cpu_devices};
  if (!o.devices.empty()) {
    try {
      const DeviceList named = parse_device_list(o.devices);
      place.runtime = named.options;
      place.list = o.devices;
      place.cpus = 0;
      Runtime runtime(named.options);
      for (const Device device : runtime.devices(o.devices)) {
        ++(device.kind() == DeviceKind::cpu ? place.cpus : place.gpus);
      }
      place.shared_gpu = place.gpus > static_cast<int>(named.options.cuda.size());
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  place.runtime.cores_per_device = o.cores_per_device;
  place.title = place.gpus > 0
                    ? o.devices
                    : fmt::format("{} of {}", count_of(place.cpus, "device"), count_of(o.cores_per_device, "core"));
  return place;
}

void check_two_devices(const Place& place, const std::string& what) {
  if (place.count() >= 2) return;
  throw UsageError(fmt::format("{}: --devices {} is one device, expected two or more", what, place.list));
}

int core_count() { return static_cast<int>(available_cpus().size()); }

}  // namespace lockstep::app
