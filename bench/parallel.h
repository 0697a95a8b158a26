// The experiments of `lockstep bench parallel`.
#pragma once

#include "bench/products.h"
#include "bench/report.h"

namespace lockstep::app {

struct ParallelOptions {
  // A value of 0 leaves the choice to the experiment.
  ProductWork work;
  PlaceOptions place;
};

// Measures products on two devices.
void measure_independent(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Measures products on two devices, while each device's results are copied to the other.
void measure_three_way(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Measures chains of small products on one device: all on one lane, and on lanes that the engine chooses.
void measure_small_ops(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Measures a random graph of operations on two devices, with inputs from both.
void measure_dag(const ParallelOptions& options, const BenchOptions& common, Report& report);

}  // namespace lockstep::app
