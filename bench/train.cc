// Shows where the time of a training step goes: by operation, by lane, on the host, and in communication. All numbers
// come from the records of the timeline, which can show them, too.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <sstream>

#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/ranks.h"
#include "bench/benchmark.h"
#include "lockstep/base/file.h"
#include "lockstep/engine/engine.h"
#include "lockstep/report/trace_summary.h"

namespace lockstep::app {
namespace {

struct BenchTrainOptions : TrainOptions {
  std::int64_t steps = 10;
};

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

std::chrono::nanoseconds cpu_time_of_this_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// Recorded after a step's loss has been read.
struct Moment {
  std::int64_t trace_ns = 0;
  std::chrono::nanoseconds host{0};
};

struct Measurement {
  Moment begin, end;
  std::vector<double> images_per_second;
  std::vector<MemoryCounters> memory;  // by device, while the model exists
  double steps() const { return static_cast<double>(images_per_second.size()); }
  double wall() const { return 1e-9 * static_cast<double>(end.trace_ns - begin.trace_ns); }
  double host() const { return seconds(end.host - begin.host); }
};

Measurement train(const BenchTrainOptions& o, int rounds, ToolJob& job, const std::shared_ptr<Trace>& trace,
                  Report& report) {
  // The time does not depend on the text.
  const bool made_up = o.is_language_model() && o.data.empty();
  const std::shared_ptr<const DataSource> data = made_up ? nullptr : load_data(o);
  const std::shared_ptr<const Dataset> examples =
      made_up ? made_up_examples(o, 64 * o.trainer.batch_size) : data->train;
  auto net = make_initialized_model(o, job, made_up ? stand_in_schema(o) : data->schema);
  auto optimizer = o.make_optimizer(net->parameters());
  TrainerOptions options = o.trainer_options(job);
  options.epochs = std::int64_t{1} << 40;
  options.max_steps = o.steps * (rounds + 1);
  Trainer trainer(*net, *optimizer, examples, nullptr, options);

  Measurement m;
  trainer.on_step = [&](const StepReport& step) {
    const Moment now{trace->elapsed_ns(), cpu_time_of_this_thread()};
    if (step.step < o.steps) return;
    if (step.step == o.steps) {
      m.begin = now;
    } else {
      m.images_per_second.push_back(step.images_per_second);
    }
    m.end = now;
  };
  report.begin();
  // Traces the warm-up, too, so that the records are complete when the measurement begins.
  job.runtime().engine().set_trace(trace);
  trainer.train();
  job.runtime().engine().set_trace(nullptr);
  for (Device device : job.devices()) m.memory.push_back(job.runtime().memory(device));
  return m;
}

// `tokens`: number of tokens in an example of a text; 0 for pictures.
void report_steps(const Measurement& m, const TraceSummary& s, std::int64_t tokens, Report& report) {
  const double step = m.wall() / m.steps();
  std::vector<std::vector<Cell>> rows{{"images/s, median step", Cell(median(m.images_per_second), 1)},
                                      {"images/s, fastest step", Cell(std::ranges::max(m.images_per_second), 1)},
                                      {"ms a step", Cell(1e3 * step, 2)},
                                      {"tasks a step", Cell(static_cast<double>(s.tasks) / m.steps(), 0)},
                                      {"host, describing: ms a step", Cell(1e3 * m.host() / m.steps(), 3)},
                                      {"host, describing: % of the step", Cell(100 * m.host() / m.wall(), 1)}};
  if (const auto hidden = s.hidden()) {
    rows.push_back({"communication: ms a step", Cell(1e3 * seconds(s.communication) / m.steps(), 2)});
    rows.push_back(
        {"communication, nothing computed beside it: ms a step", Cell(1e3 * seconds(s.exposed) / m.steps(), 2)});
    rows.push_back({"communication hidden", Cell(*hidden, 2)});
  }
  if (tokens > 0) {
    rows.insert(
        rows.begin(),
        {{"tokens/s, median step", Cell(static_cast<double>(tokens) * median(m.images_per_second), 0)},
         {"tokens/s, fastest step", Cell(static_cast<double>(tokens) * std::ranges::max(m.images_per_second), 0)}});
  }
  report.table("steps", {"what", "value"}, rows);
}

void report_operations(const Measurement& m, const TraceSummary& s, Report& report) {
  double all = 0;
  for (const auto& operation : s.operations) all += seconds(operation.total);
  std::vector<std::vector<Cell>> rows;
  for (const auto& operation : s.operations) {
    const double total = seconds(operation.total);
    rows.push_back({operation.name, Cell(static_cast<double>(operation.count) / m.steps(), 1),
                    Cell(1e3 * total / m.steps(), 3), Cell(1e6 * total / static_cast<double>(operation.count), 1),
                    Cell(100 * total / all, 1)});
  }
  report.table("operations", {"operation", "tasks a step", "ms a step", "us a task", "% of all"}, rows);
}

void report_lanes(const Measurement& m, const TraceSummary& s, Report& report) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& lane : s.lanes) {
    if (lane.tasks == 0) continue;
    rows.push_back({lane.name.device + " " + lane.name.name, Cell(static_cast<double>(lane.tasks) / m.steps(), 1),
                    Cell(100 * seconds(lane.busy) / m.wall(), 1)});
  }
  report.table("lanes", {"lane", "tasks a step", "% busy"}, rows);
}

void report_memory(const Measurement& m, const ToolJob& job, Report& report) {
  const auto mebibytes = [](std::size_t bytes) { return Cell(static_cast<double>(bytes) / (1 << 20), 1); };
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < m.memory.size(); ++i) {
    const MemoryCounters& memory = m.memory[i];
    rows.push_back({std::string(job.devices()[i].name()), mebibytes(memory.used_bytes),
                    mebibytes(memory.cached_bytes()), mebibytes(memory.peak_used_bytes),
                    mebibytes(memory.scratch_bytes)});
  }
  report.table("memory, MiB", {"device", "in use", "cached", "peak in use", "of kernels"}, rows);
}

void measure_train(BenchTrainOptions o, const BenchOptions& common, Report& report) {
  std::optional<AtomicFile> timeline;
  if (!o.trace.empty() && rank() == 0) timeline.emplace(o.trace);
  ToolJob job = make_job(o, join_ranks(o.backend));
  report.set("model", o.model.name);
  report.set("devices", str(job.devices()));
  report.set("ranks", job.world_size());
  report.set("shards", job.shards);
  report.set("threads per shard", job.runtime().threads_per_shard());
  report.set("batch size", o.trainer.batch_size);
  report.set("dtype", std::string(name(job.dtype)));
  report.set("steps", o.steps * common.rounds);
  report.set("recorded", std::string(o.trainer.record_steps ? "yes" : "no"));

  const auto trace = std::make_shared<Trace>();
  const Measurement m = train(o, common.rounds, job, trace, report);
  const TraceSummary summary = summarize(*trace, m.begin.trace_ns, m.end.trace_ns);
  report_steps(m, summary, o.is_language_model() ? o.reading.context : 0, report);
  report_operations(m, summary, report);
  report_lanes(m, summary, report);
  report_memory(m, job, report);
  const EngineCounters tasks = job.runtime().engine().counters();
  report.note(fmt::format("{} tasks were pushed in all, {} failed, {} were skipped", tasks.pushed, tasks.failed,
                          tasks.skipped));
  if (timeline) {
    std::ostringstream json;
    trace->write_json(json);
    timeline->write(json.str());
    timeline->commit();
  }
  job.close();
}

}  // namespace

Benchmark add_bench_train(CLI::App& app) {
  auto o = std::make_shared<BenchTrainOptions>();
  o->add_to(app, {"--model", "--context", "--layers", "--heads", "--width", "--dropout", "--data", "--batch-size",
                  "--optimizer", "--devices", "--num-devices", "--cores-per-device", "--threads-per-shard",
                  "--record-steps", "--shards", "--dtype", "--tf32", "--direct-conv", "--trace"});
  app.get_option("--record-steps")->description("Record a step once and repeat it");
  app.add_option("--steps", o->steps, "Steps per round")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->group("Bits");
  return [o, &app](const BenchOptions& common, Report& report) {
    o->choose_defaults(app);
    measure_train(*o, common, report);
  };
}

}  // namespace lockstep::app
