#include "bench/parallel.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "apps/lockstep/options/common_options.h"
#include "bench/benchmark.h"

namespace lockstep::app {
namespace {

void note_shared_gpu(const Place& place, Report& report) {
  if (!place.shared_gpu) return;
  report.note("Logical devices of one GPU share it: products that fill it take turns.");
}

}  // namespace

void measure_independent(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 1024;
  const Place place = place_of(o.place, 2);
  check_two_devices(place, "--experiment independent");
  const ProductWork work = calibrate(place, o.work, kSize, Copies::kNone);
  run_experiment({.title = fmt::format("{}; {}", place.title, title_of(work)),
                  .runtime = place.runtime,
                  .build = [&](Runtime& r) { return products(r.devices(place.list), work, Copies::kNone); },
                  .trace = o.place.trace},
                 common, report);
  if (core_count() < place.cpus * o.place.cores_per_device) {
    report.note(fmt::format("This process has {} for {} of {}: they take turns, and nothing can be hidden.",
                            count_of(core_count(), "core"), count_of(place.cpus, "device"),
                            count_of(o.place.cores_per_device, "core")));
  }
  note_shared_gpu(place, report);
}

void measure_three_way(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 512;
  const Place place = place_of(o.place, 2);
  check_two_devices(place, "--experiment three-way");
  const ProductWork work = calibrate(place, o.work, kSize, Copies::kToNextDevice);
  run_experiment({.title = fmt::format("{}; {}, each result copied to the {} {}", place.title, title_of(work),
                                       place.count() == 2 ? "other" : "next device", count_of(work.copies, "time")),
                  .runtime = place.runtime,
                  .build = [&](Runtime& r) { return products(r.devices(place.list), work, Copies::kToNextDevice); },
                  .trace = o.place.trace},
                 common, report);
  note_shared_gpu(place, report);
  if (place.gpus > 0) return;
  const int spare = std::max(0, core_count() - place.cpus * o.place.cores_per_device);
  if (spare < 2) {
    report.note(
        fmt::format("A copy between CPU devices needs a core of each device; {} of this process's {} free.\n"
                    "If every core computes, a copy delays a product. It can only fill time in which cores were idle\n"
                    "while the parts ran alone.",
                    spare == 0 ? "none" : "one", count_of(core_count(), "core") + " is"));
  }
}

Benchmark add_bench_parallel(CLI::App& app) {
  using Measure = void (*)(const ParallelOptions&, const BenchOptions&, Report&);
  const std::map<std::string, Measure> experiments{{"independent", measure_independent},
                                                   {"three-way", measure_three_way},
                                                   {"small-ops", measure_small_ops},
                                                   {"dag", measure_dag}};
  auto o = std::make_shared<ParallelOptions>();
  auto experiment = std::make_shared<std::string>("independent");
  app.add_option("--experiment", *experiment,
                 "independent: products on two devices; three-way: these and copies between them; small-ops: "
                 "chains of "
                 "small products on one device's lanes; dag: a random graph of operations on two devices")
      ->check(CLI::IsMember({"independent", "three-way", "small-ops", "dag"}))
      ->capture_default_str();
  add_product_options(app, o->work,
                      "independent, three-way: products per device [as many as take 0.2 s; with a GPU 50]; small-ops: "
                      "chains [64]; dag: nodes of the graph [200]");
  o->place.add_to(app);
  return [experiments, o, experiment](const BenchOptions& common, Report& report) {
    if (o->work.copies > 0 && *experiment != "three-way") {
      throw UsageError(fmt::format("--copies: only with --experiment three-way, not {}", *experiment));
    }
    report.set("experiment", *experiment);
    if (!o->place.devices.empty()) report.set("devices", o->place.devices);
    experiments.at (*experiment)(*o, common, report);
  };
}

}  // namespace lockstep::app
