// The experiments of `lockstep bench parallel`.
#pragma once

#include "bench_products.h"
#include "bench_support.h"

namespace lockstep::app {

struct ParallelOptions {
  // What is 0 is the experiment's choice.
  ProductWork work;
  PlaceOptions place;
};

// Products on two devices.
void measure_independent(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Products on two devices and copies of their results from each to the other.
void measure_three_way(const ParallelOptions& options, const BenchOptions& common, Report& report);
// Chains of small products on one device: on one lane, and on all, chosen by the engine.
void measure_small_ops(const ParallelOptions& options, const BenchOptions& common, Report& report);
// A random graph of operations on two devices, whose inputs come from either.
void measure_dag(const ParallelOptions& options, const BenchOptions& common, Report& report);

}  // namespace lockstep::app
