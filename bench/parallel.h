// The experiments of `lockstep bench parallel`.
#pragma once

#include "bench/products.h"
#include "bench/report.h"

namespace lockstep::app {

struct ParallelOptions {
  // 0 leaves the value to the experiment.
  ProductWork work;
  PlaceOptions place;
};

// Products on two devices.
void measure_independent(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Products on two devices, while each device's results are copied to the other.
void measure_three_way(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Chains of small products on one device: all on one lane, and on lanes that the engine chooses.
void measure_small_ops(const ParallelOptions& options, const BenchOptions& common, Report& report);
// A random graph of operations on two devices, with inputs from both.
void measure_dag(const ParallelOptions& options, const BenchOptions& common, Report& report);

}  // namespace lockstep::app
