// lockstep-bench NAME, which is also `lockstep bench NAME`: one subcommand per benchmark.
#include <map>
#include <optional>
#include <vector>

#include "apps/lockstep/options/command_line.h"
#include "apps/lockstep/options/usage_error.h"
#include "apps/lockstep/ranks.h"
#include "bench/benchmark.h"
#include "lockstep/base/file.h"

namespace lockstep::app {
namespace {

Command add_benchmarks(CLI::App& parent) {
  auto* app = parent.add_subcommand("bench", "Measure the engine, kernels, copies, and training steps");
  app->require_subcommand(0, 1);  // a missing name is reported later: see command_line.cc

  std::map<std::string, Benchmark> benchmarks;
  auto common = std::make_shared<BenchOptions>();
  auto json = std::make_shared<std::string>();
  auto add = [&](const std::string& name, const std::string& description, auto add_benchmark) {
    auto* sub = app->add_subcommand(name, description);
    sub->add_option("--rounds", common->rounds, "Number of rounds; results are medians over them")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    sub->add_option("--json", *json, "Write results and the times of all rounds to this file, as JSON")
        ->group("Output");
    benchmarks[name] = add_benchmark(*sub);
  };
  add("allreduce", "All-reduce between two processes, through shared memory and TCP", add_bench_allreduce);
  add("engine", "The cost of a task, compared with bare hand-overs between threads", add_bench_engine);
  add("kernels", "The speed of each convolution and matrix product of a model, on one thread of a CPU",
      add_bench_kernels);
  add("latency", "A prediction for one image, called by one thread and by four; texts of a GPT", add_bench_latency);
  add("overlap", "Copies to the host during matrix products", add_bench_overlap);
  add("parallel", "Devices, lanes, and copies that work at the same time", add_bench_parallel);
  add("train", "Where the time of a training step goes", add_bench_train);

  return [app, benchmarks, common, json] {
    if (app->get_subcommands().empty()) throw UsageError("expected a benchmark (see lockstep bench --help)");
    const std::string name = app->get_subcommands().front()->get_name();
    if (name != "train") check_single_process("bench " + name);
    const bool first = rank() == 0;
    // Opens the file before the measurement, so that an error comes early.
    std::optional<AtomicFile> file;
    if (!json->empty() && first) file.emplace(*json);
    Report report(name, first);
    benchmarks.at(name)(*common, report);
    if (file) {
      file->write(report.json());
      file->commit();
    }
    return 0;
  };
}

}  // namespace
}  // namespace lockstep::app

// Errors and help name `lockstep bench`, however the program was started.
int main(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string bench = "bench";
  words.insert(words.begin() + 1, bench.data());
  return lockstep::app::run_command(static_cast<int>(words.size()), words.data(), [](CLI::App& app) {
    return lockstep::app::Commands{{"bench", lockstep::app::add_benchmarks(app)}};
  });
}
