#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "apps/lockstep/bits/weights_log.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/run_config.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/resume.h"
#include "apps/lockstep/stop_signals.h"
#include "apps/lockstep/temporary_folder.h"
#include "apps/lockstep/training_console.h"
#include "apps/lockstep/training_setup.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/folder_claim.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/device/topology.h"
#include "lockstep/engine/engine.h"
#include "lockstep/nn/summary.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/receipt/leaf_files.h"
#include "lockstep/report/metrics_file.h"
#include "lockstep/report/run_page.h"
#include "lockstep/report/run_plot.h"
#include "lockstep/runtime/timeline.h"
#include "lockstep/train/lr_finder.h"

namespace lockstep::app {
namespace {

// Checks at the start that a file can be written at the end.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  check(std::filesystem::is_directory(folder), "{}: the folder {} does not exist", path, folder.string());
  check(!std::filesystem::is_directory(path), "{}: is a folder, expected a file", path);
  AtomicFile probe{path};
}

// Checks the same for a log, which may be a device or a pipe.
void check_log_writable(const char* option, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code unknown;
  check(std::filesystem::is_directory(folder, unknown), "{} {}: the folder {} does not exist", option, path,
        folder.string());
  check(!std::filesystem::is_directory(path, unknown), "{} {}: is a folder, expected a file", option, path);
  const std::filesystem::path place = std::filesystem::exists(path, unknown) ? std::filesystem::path(path) : folder;
  check(::access(place.c_str(), W_OK) == 0, "{} {}: cannot write {}: {}", option, path, place.string(),
        std::generic_category().message(errno));
}

std::filesystem::path page_file(const TrainOptions& o) {
  const std::filesystem::path folder = o.report_folder();
  return folder.empty() ? folder : folder / "report.html";
}

// Rejects outputs to the same file, where one would replace or truncate the other. Devices and pipes may take several.
void check_apart(const TrainOptions& o) {
  const std::pair<const char*, std::filesystem::path> outputs[] = {{"--export", o.export_file},
                                                                   {"--log", o.log},
                                                                   {"--plot", o.plot},
                                                                   {"--trace", o.trace},
                                                                   {"--report", page_file(o)},
                                                                   {"--metrics-file", o.metrics_file},
                                                                   {"--weights-log", o.weights_log},
                                                                   {"--receipt", o.receipt_options().file}};
  std::map<std::filesystem::path, const char*> users;
  std::vector<std::pair<const char*, std::filesystem::path>> all(std::begin(outputs), std::end(outputs));
  if (const std::filesystem::path receipt = o.receipt_options().file; !receipt.empty()) {
    for (const char* kind : {"train", "test", "state"}) all.emplace_back("--receipt", leaf_file(receipt, kind));
  }
  for (const auto& [option, path] : all) {
    std::error_code unknown;
    if (path.empty() || (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)))
      continue;
    const auto [other, is_first] = users.emplace(std::filesystem::weakly_canonical(path, unknown), option);
    if (!is_first) throw UsageError(fmt::format("{} and {} name one file, {}", other->second, option, path.string()));
  }
}

// Keeps the weights of a run without checkpoints if the disk is full.
void export_weights(const TrainOptions& o, const Module& net) {
  std::string why;
  try {
    return save_weights(o.export_file, net);
  } catch (const Error& error) {
    why = error.what();
  }
  std::string instead = o.save.empty() ? "" : fmt::format("the checkpoint in {} has the weights", o.save);
  if (o.save.empty()) {
    try {
      const auto other = temporary_folder() /
                         fmt::format("{}-{}", ::getpid(), std::filesystem::path(o.export_file).filename().string());
      save_weights(other, net);
      instead = fmt::format("the weights are in {}", other.string());
    } catch (const Error& error) {
      instead = error.what();
    }
  }
  fail("--export: {}; {}", why, instead);
}

// Returns the file of a rank's own timeline: trace.json, trace.rank1.json.
std::string trace_file(const std::string& path, int rank) {
  if (rank == 0) return path;
  std::filesystem::path p(path);
  return p.replace_extension(fmt::format("rank{}{}", rank, p.extension().string())).string();
}

// Checks that all ranks have the same replicas, because the loss would not show a difference.
void check_replicas(const ToolJob& job, const Module& net) {
  Communicator& ranks = *job.communicator();
  if (ranks.alone()) return;
  std::string mine = weights_sha256(net);
  bool same = ranks.broadcast_on_host(mine, "weights at the end") == mine;
  ranks.agree(same ? "" : "the weights at the end differ from rank 0's", "weights at the end");
}

// Returns the number of steps of the whole run, including those before a checkpoint.
std::int64_t planned_steps(const TrainOptions& o, std::int64_t examples) {
  const auto quotient = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
  if (o.trainer.drop_last) examples -= examples % o.trainer.batch_size;
  const std::int64_t micro_batches = quotient(examples, o.trainer.batch_size / o.trainer.accumulate);
  const std::int64_t steps = o.trainer.epochs * quotient(micro_batches, o.trainer.accumulate);
  return o.trainer.max_steps > 0 ? std::min(steps, o.trainer.max_steps) : steps;
}

// Writes notices about options that fit the model but have no effect on these data and devices.
void notice_options(const TrainOptions& o, const ToolJob& job, const DataSource& data) {
  notice_limits(o, data);
  notice_other_data(o, data);
  if (parse_balance(o.balance, 0).automatic && job.shards == job.devices_of_ranks) {
    notice("--balance auto changes nothing: each device has one shard");
  } else if (parse_balance(o.balance, 0).automatic && job.devices_of_ranks == 1) {
    notice("--balance auto changes nothing: there is one device");
  }
  if (o.sync_bn && job.shards == 1) {
    notice("--sync-bn is for several shards: the only one has the whole batch");
  }
  if (const std::int64_t steps = planned_steps(o, data.train->size());
      o.trainer.schedule.warmup > 0 && o.trainer.schedule.warmup >= steps) {
    notice(fmt::format("--warmup {}: the run has {} step{}, so the warm-up does not end before it",
                       o.trainer.schedule.warmup, steps, steps == 1 ? "" : "s"));
  }
}

// Runs --find-lr.
void find_rate(const TrainOptions& o, Module& net, Optimizer& optimizer, std::shared_ptr<const Dataset> data,
               TrainerOptions options, bool first) {
  options.schedule = {};
  options.metrics.clear();
  options.watch = {};
  const LearningRateCurve curve =
      find_learning_rate(net, optimizer, std::move(data), std::move(options), {.steps = o.find_lr});
  if (!first) return;
  print_out("rate      loss\n");
  constexpr std::size_t kRows = 15;
  const std::size_t count = curve.points.size(), apart = (count + kRows - 1) / kRows;
  for (std::size_t i = 0; i < count; i += apart) {
    print_out("{:<8.1e}  {:.4f}\n", curve.points[i].rate, curve.points[i].smoothed);
  }
  if (curve.diverged) print_out("the loss diverges at {:.1e}\n", curve.points.back().rate);
  // All rates had the head's ratio to --lr.
  const std::string head = o.head_lr ? fmt::format(" --head-lr {:.2g}", *o.head_lr / o.lr * curve.suggestion) : "";
  print_out("suggested: --lr {:.2g}{}\n", curve.suggestion, head);
  if (!o.plot.empty()) {
    const PlotPanel panel = learning_rate_panel(curve);
    PlotOptions axes = learning_rate_axis();
    axes.title = fmt::format("{}: --lr {:.2g}", o.model.name, curve.suggestion);
    write_plot(o.plot, {&panel, 1}, axes);
  }
  if (o.log.empty()) return;
  std::ofstream log(o.log, std::ios::trunc);
  for (std::size_t i = 0; i < count; ++i) {
    const LearningRatePoint& p = curve.points[i];
    log << nlohmann::ordered_json{{"event", "rate"},
                                  {"step", i + 1},
                                  {"learning_rate", p.rate},
                                  {"loss", p.loss},
                                  {"smoothed", p.smoothed}}
               .dump()
        << '\n';
  }
  log << nlohmann::ordered_json{{"event", "end"}, {"suggestion", curve.suggestion}, {"diverged", curve.diverged}}.dump()
      << '\n';
  log.flush();
  check(log.good(), "--log {}: cannot write it", o.log);
}

int run(TrainOptions o, ToolJob& job, Start chosen, StopSignals& signals) {
  bool first = job.rank() == 0;
  auto [flip_step, flip_parameter] = o.flip();
  TrainingSetup setup = set_up_training(o, job);
  const DataSource& data = *o.source;
  Module& net = *setup.net;
  TrainerOptions& options = setup.options;
  if (o.summary && first) print_out("{}", summary(net, example_input(*data.train, o.seed)));
  if (first) notice_options(o, job, data);
  if (const std::string holder = first && !o.save.empty() ? FolderClaim::holder_elsewhere(o.save) : "";
      !holder.empty()) {
    notice(fmt::format("--save {}: waiting for {}, which has this folder, up to 100 s", o.save, holder));
  }
  if (o.find_lr > 0) {
    if (first && o.own_data) print_out("{}\n", data.description);
    find_rate(o, net, *setup.optimizer, data.train, std::move(options), first);
    job.close();
    return 0;
  }
  options.log_file = o.log;
  Trainer trainer(net, *setup.optimizer, data.train, data.validation, std::move(options));
  TrainingPosition start;
  if (chosen.resumes) {
    ResumedRun run = resume(trainer, std::move(chosen.checkpoint));
    start = run.position;
    if (first) {
      for (const std::string& damage : run.damaged) notice("skipped a damaged checkpoint: " + damage);
      notice(fmt::format("resumed from {}, step {}{}", run.path.string(), run.position.step, not_compared(run)));
      if (o.save.empty()) notice("no more checkpoints are written; --save DIR continues to write them");
      std::error_code unknown;
      if (!o.save.empty() && !o.trainer.watch.save_best &&
          std::filesystem::is_directory(std::filesystem::path(o.save) / "best", unknown)) {
        notice(
            fmt::format("--save {}: eval, predict, and export take the weights in its folder best, which this run "
                        "leaves as they are; --save-best keeps them up to date",
                        o.save));
      }
    }
  }

  const auto cores = job.communicator()->gather_on_host(std::ssize(available_cpus()), "number of cores");
  if (first && o.own_data) print_out("{}\n", data.description);
  std::shared_ptr<TrainingConsole> console;
  if (first) console = std::make_shared<TrainingConsole>(o, job, trainer.recipe(), data, cores);
  if (o.dry_run) {
    if (first) print_out("run {}\n", run_key(o, describe_run(o, job, trainer.recipe())));
    job.close();
    return 0;
  }

  std::optional<Timeline> timeline;
  if (!o.trace.empty()) timeline.emplace(job.runtime());
  if (first && !o.report_folder().empty()) {
    trainer.observe(std::make_shared<RunPage>(trainer, RunPageOptions{.folder = o.report_folder(),
                                                                      .title = run_title(o, job),
                                                                      .data = o.source,
                                                                      .resumed_from = o.resume,
                                                                      .origin = o.report_origin,
                                                                      .timeline = timeline ? &*timeline : nullptr,
                                                                      .runtime = &job.runtime()}));
  }
  if (!o.metrics_file.empty()) trainer.observe(std::make_shared<MetricsFile>(trainer, o.metrics_file));
  if (first && !o.plot.empty()) {
    trainer.observe(
        std::make_shared<RunPlot>(o.plot, RunPlotOptions{.title = run_title(o, job),
                                                         .epochs = o.trainer.epochs,
                                                         .by_others = o.is_language_model() || o.is_regression()}));
  }
  if (first && !o.weights_log.empty()) {
    // BitFlip comes first, so that the log has the flipped bit.
    if (flip_step > 0) trainer.observe(std::make_shared<BitFlip>(flip_step, flip_parameter));
    trainer.observe(std::make_shared<WeightsLog>(o.weights_log));
  }
  if (console) trainer.observe(console);
  if (first && !o.save.empty()) trainer.observe(std::make_shared<RunFiles>(o, job));
  const TrainingResult result = signals.train(trainer);
  if (const std::string why = trainer.why_not_recorded(); first && !why.empty()) {
    notice(fmt::format("--record-steps: steps were not recorded: {}", why));
  }
  if (const std::string why = trainer.why_no_graph(); first && !why.empty()) {
    notice(fmt::format("--record-steps: no CUDA graph: {}", why));
  }
  if (first && start.step > 0 && result.steps == start.step && !result.stopped && !result.stopped_early) {
    notice(fmt::format("nothing left to do: the checkpoint has {} steps, {} epochs; --epochs {}{}", start.step,
                       start.epoch, o.trainer.epochs,
                       o.trainer.max_steps > 0 ? fmt::format(", --max-steps {}", o.trainer.max_steps) : ""));
  }
  if (console) console->print(result);
  for (const ObserverFailure& failure : result.failures) {
    notice(first ? failure.str() : fmt::format("rank {}: {}", job.rank(), failure.str()));
  }
  if (first && result.lost_best > 0) {
    notice(
        fmt::format("--save-best: the checkpoint of epoch {}, the best, was damaged or gone when this run was resumed; "
                    "best holds the best of the other epochs",
                    result.lost_best));
  }
  if (first && result.stopped_early) {
    notice(fmt::format("ended after step {}: {} epoch{} without a better value", result.steps, o.trainer.watch.patience,
                       o.trainer.watch.patience == 1 ? "" : "s"));
  }
  // If the run was stopped before its first step, the shapes of weights may be unknown.
  const bool has_weights = !result.stopped || net.parameters()[0].shape_known();
  const bool exports = !o.export_file.empty() && has_weights;
  if (first && exports) {
    std::optional<AveragedWeights> averaged;
    if (trainer.average()) averaged.emplace(*trainer.average());
    export_weights(o, net);
    if (const ReceiptOptions receipt = o.receipt_options(); std::filesystem::exists(receipt.file)) {
      add_to_receipt(receipt, o.export_file);
    }
  }
  // Comes after the weights, which a trace that cannot be written must not lose.
  if (timeline) timeline->write(trace_file(o.trace, job.rank()));
  timeline.reset();
  // Skips the check after --inject-flip, because `verify` must see the flipped bit.
  if (flip_step == 0) check_replicas(job, net);
  job.close();
  if (result.stopped) {
    if (first) {
      notice(fmt::format("interrupted at step {}{}{}", result.steps,
                         o.save.empty() ? "" : "; the checkpoint is in " + o.save,
                         exports ? fmt::format("; {} has the weights of this step", o.export_file) : ""));
    }
  }
  return signals.status();
}

int train(TrainOptions o) {
  StopSignals signals;
  if (!o.plot.empty() && std::filesystem::path(o.plot).extension() != ".svg") {
    throw UsageError(fmt::format("--plot {}: expected a name that ends in .svg", o.plot));
  }
  check_apart(o);
  if (rank() == 0) {
    check_writable(o.export_file);
    check_writable(o.plot);
    if (!o.report.empty() && o.report != "none") {
      std::error_code failed;
      std::filesystem::create_directories(o.report, failed);
      check(!failed, "--report {}: cannot make the folder: {}", o.report, failed.message());
      check_writable(page_file(o));
    }
    check_writable(o.trace);
    check_writable(o.metrics_file);
    if (!o.receipt.empty() && o.receipt != "none") check_writable(o.receipt);
    check_log_writable("--log", o.log);
    check_log_writable("--weights-log", o.weights_log);
  }
  const std::shared_ptr<ProcessGroup> group = join_ranks(o.backend, o.timeout_seconds);
  if (o.timeout_seconds && group->size() == 1 && !is_launched()) {
    o.notices.push_back("--timeout changes nothing: no launcher started this process");
  }
  std::optional<ToolJob> job;
  Start start;
  try {
    start = choose_start(o, *group);
    job.emplace(make_job(o, group));
  } catch (const std::exception& error) {
    group->abort(message_of(error));
    throw;
  }
  try {
    return run(o, *job, std::move(start), signals);
  } catch (const std::exception& error) {
    // Cancels the remaining work, which is useless now.
    job->runtime().engine().cancel_pending(error.what());
    // Tells the other ranks, which wait for this one, why it does not come.
    group->abort(message_of(error));
    throw;
  }
}

}  // namespace

Command add_train(CLI::App& parent) {
  auto* app = parent.add_subcommand(
      "train", "Train a model on your data: pictures, a table, arrays, or a text; or on Fashion-MNIST");
  auto options = std::make_shared<TrainOptions>();
  options->add_to(*app);
  return [options, app] {
    options->choose_defaults(*app);
    return train(*options);
  };
}

}  // namespace lockstep::app
