#include <fmt/core.h>

#include <memory>
#include <optional>

#include "apps/lockstep/options/common_options.h"
#include "bench/parallel.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/inter_op_parallel_guard.h"
#include "lockstep/ops/matmul.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::app {
namespace {

constexpr int kLength = 16;

// Makes chains y w w w ... w, described one after another.
Experiment chains(Runtime& runtime, std::int64_t size, int count, bool spread) {
  struct Chains {
    std::vector<Array> begins, ends;
    Array w;
  };
  const Device device = runtime.devices()[0];
  auto all = std::make_shared<Chains>();
  for (int i = 0; i < count; ++i) {
    all->begins.push_back(ops::to_device(random_matrix(size, static_cast<std::uint64_t>(i)), device));
  }
  all->w = ops::to_device(random_matrix(size, static_cast<std::uint64_t>(count)), device);
  all->ends.resize(all->begins.size());
  auto push = [all, spread](int i) {
    std::optional<InterOpParallelGuard> scope;
    if (spread) scope.emplace();
    const auto k = static_cast<std::size_t>(i);
    Array y = all->begins[k];
    for (int step = 0; step < kLength; ++step) y = ops::matmul(y, all->w);
    all->ends[k] = y;
  };
  return {.parts = {{"chains", count, push}}, .results = [all] { return all->ends; }};
}

}  // namespace

void measure_small_ops(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  if (!o.place.devices.empty()) {
    throw UsageError("--experiment small-ops has one CPU device of all cores, and takes no --devices");
  }
  if (o.place.cores_per_device != PlaceOptions{}.cores_per_device) {
    throw UsageError("--experiment small-ops has one CPU device of all cores, and takes no --cores-per-device");
  }
  constexpr std::int64_t kSize = 192;
  constexpr int kCount = 64;
  const std::int64_t size = o.work.size > 0 ? o.work.size : kSize;
  const int count = o.work.count > 0 ? o.work.count : kCount;
  // One device has all cores, and each core has a lane of one thread.
  const RuntimeOptions runtime{.threads_per_shard = 1};
  auto build = [size, count](bool spread) {
    return [size, count, spread](Runtime& r) { return chains(r, size, count, spread); };
  };
  RuntimeOptions serial = runtime;
  serial.serial = true;
  compare_variants(fmt::format("1 device of {}; {} of {} products of {} x {}", count_of(core_count(), "core"),
                               count_of(count, "chain"), kLength, size, size),
                   {{"serial engine", serial, build(false)},
                    {"one lane", runtime, build(false)},
                    {count_of(core_count(), "lane") + ", chosen by the engine", runtime, build(true)}},
                   o.place.trace, common, report);
  if (core_count() == 1)
    report.note("This process has 1 core: its device has one lane, and nothing runs side by side.");
}

}  // namespace lockstep::app
