#include "bench_parallel.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "bench.h"

namespace lockstep::app {

void measure_independent(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 1024;
  const RuntimeOptions runtime{.cpu_devices = 2, .cores_per_device = o.cores_per_device};
  const ProductWork work = calibrate(
      runtime, {.size = o.work.size > 0 ? o.work.size : kSize, .count = o.work.count}, Copies::kNone);
  run_experiment(
      {.title = fmt::format("2 devices of {}; on each {} of {} x {}", count_of(o.cores_per_device, "core"),
                            count_of(work.count, "product"), work.size, work.size),
       .runtime = runtime,
       .build = [work](Runtime& r) { return products(r, work, Copies::kNone); },
       .trace = o.trace},
      common, report);
  if (core_count() < 2 * o.cores_per_device) {
    report.note(
        fmt::format("This process has {} for 2 devices of {}: they take turns, and nothing can be hidden.",
                    count_of(core_count(), "core"), o.cores_per_device));
  }
}

void measure_three_way(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 512;
  const RuntimeOptions runtime{.cpu_devices = 2, .cores_per_device = o.cores_per_device};
  ProductWork wanted = o.work;
  if (wanted.size == 0) wanted.size = kSize;
  const ProductWork work = calibrate(runtime, wanted, Copies::kToNextDevice);
  run_experiment(
      {.title = fmt::format("2 devices of {}; on each {} of {} x {}, each result copied to the other {}",
                            count_of(o.cores_per_device, "core"), count_of(work.count, "product"), work.size,
                            work.size, count_of(work.copies, "time")),
       .runtime = runtime,
       .build = [work](Runtime& r) { return products(r, work, Copies::kToNextDevice); },
       .trace = o.trace},
      common, report);
  const int spare = std::max(0, core_count() - 2 * o.cores_per_device);
  if (spare < 2) {
    report.note(fmt::format(
        "Copies between CPU devices are work for a core of each; {} of this process's {} left over.\n"
        "Where every core computes, a copy takes the time of a product, and only what cores were idle\n"
        "while the parts ran alone is hidden.",
        spare == 0 ? "none" : "one", count_of(core_count(), "core") + (spare == 1 ? " is" : " are")));
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
  add_product_options(app, o->work);
  add_experiment_options(app, o->trace, o->cores_per_device);
  return [experiments, o, experiment](const BenchOptions& common, Report& report) {
    check_cores(o->cores_per_device);
    report.set("experiment", *experiment);
    experiments.at (*experiment)(*o, common, report);
  };
}

}  // namespace lockstep::app
