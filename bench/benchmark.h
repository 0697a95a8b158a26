// The benchmarks. Each adds its options to its own subcommand and returns the measurement.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "bench/report.h"

namespace lockstep::app {

// Throws if results differ from those of the serial run.
using Benchmark = std::function<void(const BenchOptions&, Report&)>;

Benchmark add_bench_allreduce(CLI::App& app);
Benchmark add_bench_engine(CLI::App& app);
Benchmark add_bench_kernels(CLI::App& app);
Benchmark add_bench_latency(CLI::App& app);
Benchmark add_bench_overlap(CLI::App& app);
Benchmark add_bench_parallel(CLI::App& app);
Benchmark add_bench_train(CLI::App& app);

}  // namespace lockstep::app
