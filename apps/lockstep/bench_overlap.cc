// Copies to the host under products: y[i] is copied while y[i + 1] is computed.
#include <fmt/core.h>

#include <memory>

#include "bench.h"
#include "bench_products.h"

namespace lockstep::app {
namespace {

struct OverlapOptions {
  ProductWork work{.size = 512};
  int cores_per_device = 1;
  std::string trace;
};

void measure_devices(const OverlapOptions& o, int devices, const std::string& where, const std::string& trace,
                     const BenchOptions& common, Report& report) {
  const RuntimeOptions runtime{.cpu_devices = devices, .cores_per_device = o.cores_per_device};
  const ProductWork work = calibrate(runtime, o.work, Copies::kToHost);
  run_experiment({.title = fmt::format(
                      "{} of {}, {}; on each {} of {} x {}, each result copied to the host {}",
                      count_of(devices, "device"), count_of(o.cores_per_device, "core"), where,
                      count_of(work.count, "product"), work.size, work.size, count_of(work.copies, "time")),
                  .runtime = runtime,
                  .build = [work](Runtime& r) { return products(r, work, Copies::kToHost); },
                  .trace = trace},
                 common, report);
}

void measure_overlap(const OverlapOptions& o, const BenchOptions& common, Report& report) {
  check_cores(o.cores_per_device);
  report.set("size", o.work.size);
  report.set("cores_per_device", o.cores_per_device);
  // The timeline is that of the first table.
  const bool spare = o.cores_per_device < core_count();
  if (spare) measure_devices(o, 1, "copies on another core", o.trace, common, report);
  // As many devices as there are cores for, so that each core has its products.
  const int all = core_count() / o.cores_per_device;
  measure_devices(o, all, "no core left for copies", spare ? "" : o.trace, common, report);
  report.note(
      "Where every core computes, a copy that a CPU makes takes the time of a product: there is nothing to "
      "hide\n"
      "it under. What is hidden there is what the cores were idle while the parts ran alone.");
}

}  // namespace

Benchmark add_bench_overlap(CLI::App& app) {
  auto o = std::make_shared<OverlapOptions>();
  add_product_options(app, o->work);
  add_experiment_options(app, o->trace, o->cores_per_device);
  return [o](const BenchOptions& common, Report& report) { measure_overlap(*o, common, report); };
}

}  // namespace lockstep::app
