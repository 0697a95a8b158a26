// Measures copies to the host during products: y[i] is copied while y[i + 1] is computed.
#include <fmt/core.h>

#include <memory>

#include "bench/benchmark.h"
#include "bench/products.h"

namespace lockstep::app {
namespace {

struct OverlapOptions {
  ProductWork work;
  PlaceOptions place;
};

void measure_copies(const OverlapOptions& o, const Place& place, const std::string& where, Copies copies,
                    const std::string& trace, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 512;
  const ProductWork work = calibrate(place, o.work, kSize, copies);
  report.set("size", work.size);
  run_experiment({.title = fmt::format("{}, {}; {}, each result copied to the host {}", place.title, where,
                                       title_of(work), count_of(work.copies, "time")),
                  .runtime = place.runtime,
                  .build = [&](Runtime& r) { return products(r.devices(place.list), work, copies); },
                  .trace = trace},
                 common, report);
}

// Writes the timeline of the first table only.
void measure_gpus(const OverlapOptions& o, const Place& place, const BenchOptions& common, Report& report) {
  measure_copies(o, place, "pinned host memory", Copies::kToHost, o.place.trace, common, report);
  measure_copies(o, place, "pageable host memory", Copies::kToPageableHost, "", common, report);
  report.note(
      "A GPU copies to pinned memory by itself. To pageable memory, the driver copies through a buffer of\n"
      "its own, and a worker of the copy lane waits for it.");
}

void measure_cpus(const OverlapOptions& o, const BenchOptions& common, Report& report) {
  const bool spare = o.place.cores_per_device < core_count();
  if (spare)
    measure_copies(o, place_of(o.place, 1), "copies on another core", Copies::kToHost, o.place.trace, common, report);
  // Uses as many devices as there are cores, so that all cores compute products.
  measure_copies(o, place_of(o.place, core_count() / o.place.cores_per_device), "no core left for copies",
                 Copies::kToHost, spare ? "" : o.place.trace, common, report);
  report.note(
      "If every core computes, a copy by a CPU delays a product, so nothing hides it. There a copy can only fill\n"
      "time in which cores were idle while the parts ran alone.");
}

void measure_overlap(const OverlapOptions& o, const BenchOptions& common, Report& report) {
  const Place place = place_of(o.place, 1);
  report.set("cores_per_device", o.place.cores_per_device);
  if (o.place.devices.empty()) return measure_cpus(o, common, report);
  report.set("devices", o.place.devices);
  if (place.gpus > 0) return measure_gpus(o, place, common, report);
  measure_copies(o, place, "copies on other cores if there are any", Copies::kToHost, o.place.trace, common, report);
}

}  // namespace

Benchmark add_bench_overlap(CLI::App& app) {
  auto o = std::make_shared<OverlapOptions>();
  add_product_options(app, o->work, "Products per device [as many as take 0.2 s; with a GPU 50]");
  o->place.add_to(app);
  return [o](const BenchOptions& common, Report& report) { measure_overlap(*o, common, report); };
}

}  // namespace lockstep::app
