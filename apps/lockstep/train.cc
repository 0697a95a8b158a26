#include <atomic>
#include <csignal>
#include <cstdio>
#include <sstream>

#include "commands.h"
#include "job_options.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/engine/trace.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/train/log_writer.h"
#include "lockstep/train/plot.h"
#include "lockstep/train/progress_bar.h"
#include "lockstep/train/trainer.h"

namespace lockstep::app {
namespace {

struct TrainOptions : JobOptions {
  std::int64_t epochs = 10;
  std::int64_t max_steps = 0;
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  std::string optimizer = "sgd";
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double clip = 0;
  double label_smoothing = 0;
  bool no_shuffle = false;
  bool sync_bn = false;
  std::string export_file, save, resume, log, plot, trace;
  std::int64_t save_every = 0;
};

// As CLI::Range, which takes NaN for a number in every range.
CLI::Validator number(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        double value = 0;
        bool fits = CLI::detail::lexical_cast(text, value) && value >= low && value <= high;
        return fits ? std::string() : fmt::format("{} is not in [{} - {}]", text, low, high);
      },
      fmt::format("FLOAT in [{} - {}]", low, high));
}

void add_options(CLI::App& app, TrainOptions& o) {
  auto steps = CLI::Range(std::int64_t{0}, std::int64_t{1} << 40);
  auto amount = number(0, 1e9);
  o.add_model(app);
  o.add_devices(app);
  o.add_data(app);
  app.add_option("--limit-train", o.limit_train, "Use the first N training images only")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--epochs", o.epochs, "Passes over the data")->check(steps)->capture_default_str();
  app.add_option("--max-steps", o.max_steps, "Ends the run after N steps")->check(steps);
  app.add_option("--lr", o.lr, "Learning rate")->check(amount)->capture_default_str();
  app.add_option("--momentum", o.momentum)->check(number(0, 1))->capture_default_str();
  app.add_option("--weight-decay", o.weight_decay)->check(amount)->capture_default_str();
  app.add_option("--optimizer", o.optimizer)->check(CLI::IsMember({"sgd", "adam", "adamw"}))->capture_default_str();
  app.add_option("--schedule", o.schedule)->check(CLI::IsMember({"constant", "step", "cosine"}))->capture_default_str();
  app.add_option("--warmup", o.warmup, "Steps of linear growth of the learning rate")->check(steps);
  app.add_option("--clip", o.clip, "Largest norm of the gradient")->check(amount);
  app.add_option("--label-smoothing", o.label_smoothing)->check(number(0, 1));
  app.add_option("--seed", o.seed, "Decides start weights, order and dropout")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--no-shuffle", o.no_shuffle, "Keep the order of the files");
  app.add_flag("--sync-bn", o.sync_bn, "Synchronized batch norm");
  app.add_option("--export", o.export_file, "Final weights and buffers, safetensors");
  app.add_option("--save", o.save, "Folder for checkpoints");
  app.add_option("--save-every", o.save_every, "Steps between checkpoints [one after each epoch]")
      ->check(steps)
      ->needs("--save");
  app.add_option("--resume", o.resume, "Go on from the newest checkpoint in this folder")->check(CLI::ExistingDirectory);
  app.add_option("--log", o.log, "JSON lines");
  app.add_option("--plot", o.plot, "Test accuracy and loss by epoch, SVG");
  app.add_option("--trace", o.trace, "Timeline in Chrome's trace-event format, for Perfetto");
}

std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& o, std::vector<Parameter> parameters) {
  if (o.optimizer == "sgd") {
    return std::make_unique<Sgd>(std::move(parameters),
                                 SgdOptions{.lr = o.lr, .momentum = o.momentum, .weight_decay = o.weight_decay});
  }
  AdamOptions adam{.lr = o.lr, .weight_decay = o.weight_decay};
  if (o.optimizer == "adam") return std::make_unique<Adam>(std::move(parameters), adam);
  return std::make_unique<AdamW>(std::move(parameters), adam);
}

TrainerOptions trainer_options(const TrainOptions& o, const Job& job) {
  TrainerOptions t{.devices = job.devices,
                   .shards = job.shards,
                   .batch_size = o.batch_size,
                   .epochs = o.epochs,
                   .max_steps = o.max_steps,
                   .shuffle = !o.no_shuffle,
                   .seed = o.seed,
                   .dtype = job.dtype,
                   .label_smoothing = o.label_smoothing,
                   .clip_norm = o.clip,
                   .save_folder = o.save,
                   .save_every = o.save_every};
  t.schedule.kind = o.schedule == "step"     ? ScheduleKind::step
                    : o.schedule == "cosine" ? ScheduleKind::cosine
                                             : ScheduleKind::constant;
  t.schedule.warmup = o.warmup;
  t.recipe = {{"model", o.model},
              {"threads_per_shard", job.runtime->threads_per_shard()},
              {"optimizer", o.optimizer},
              {"momentum", o.momentum},
              {"weight_decay", o.weight_decay},
              {"schedule", o.schedule},
              {"sync_bn", o.sync_bn}};
  return t;
}

// What the signal handler may touch.
std::atomic<Trainer*> interrupted_trainer{nullptr};
static_assert(std::atomic<Trainer*>::is_always_lock_free);

void on_signal(int signal) {
  if (Trainer* trainer = interrupted_trainer.load()) trainer->request_stop();
  // A second one ends the process the hard way.
  std::signal(signal, SIG_DFL);
}

class StopOnSignal {
 public:
  explicit StopOnSignal(Trainer& trainer) {
    interrupted_trainer = &trainer;
    for (int s : {SIGINT, SIGTERM}) std::signal(s, on_signal);
  }
  ~StopOnSignal() {
    for (int s : {SIGINT, SIGTERM}) std::signal(s, SIG_DFL);
    interrupted_trainer = nullptr;
  }
};

// A file that will be written at the end has to be writable at the beginning.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  check(std::filesystem::is_directory(folder), "{}: the folder {} does not exist", path, folder.string());
  check(!std::filesystem::is_directory(path), "{}: is a folder, expected a file", path);
  AtomicFile probe{path};
}

int train(const TrainOptions& o) {
  check_writable(o.export_file);
  check_writable(o.plot);
  check_writable(o.trace);
  auto train_data = load_data(o, true);
  auto test_data = load_data(o, false);
  Job job = make_job(o);
  auto net = make_initialized_model(o, job);
  if (o.sync_bn) convert_sync_batchnorm(*net);
  auto optimizer = make_optimizer(o, net->parameters());
  Trainer trainer(*net, *optimizer, train_data, test_data, trainer_options(o, job));
  if (!o.resume.empty()) {
    ResumedRun run = trainer.resume(o.resume);
    for (const std::string& damage : run.damaged) notice("skipped a damaged checkpoint: " + damage);
    notice(fmt::format("resumed from {}, step {}", run.path.string(), run.position.step));
  }

  std::string where = str(job.devices);
  std::optional<LogWriter> log;
  if (!o.log.empty()) log.emplace(o.log, LogWriterOptions{.append = !o.resume.empty()});
  fmt::print("running on: {}\n", where);
  std::fflush(stdout);
  std::vector<std::string> names;
  for (Device d : job.devices) names.emplace_back(d.name());
  bool started = false;
  // The number of parameters is known when the first batch has settled all shapes.
  auto start = [&] {
    if (started || !log) return;
    started = true;
    nlohmann::ordered_json event = {{"event", "start"},
                                    {"devices", names},
                                    {"shards", job.shards},
                                    {"world_size", 1},
                                    {"parameters", net->parameter_count()}};
    event.update(trainer.recipe());
    log->write(event);
  };

  std::optional<ProgressBar> bar;
  std::vector<EpochResult> plotted;
  double seconds = 0;
  trainer.on_step = [&](const StepReport& r) {
    start();
    if (log) {
      log->write({{"event", "step"},
                  {"step", r.step},
                  {"epoch", r.epoch},
                  {"loss", r.loss},
                  {"images_per_second", r.images_per_second},
                  {"samples", r.samples}});
    }
    if (!bar) bar.emplace(stderr, fmt::format("epoch {}/{}", r.epoch, o.epochs), train_data->size());
    bar->update(std::min(r.batch * o.batch_size, train_data->size()));
  };
  trainer.on_epoch = [&](const EpochReport& r) {
    bar.reset();
    seconds += r.seconds;
    fmt::print("epoch {}, time {:.1f} sec, train loss {:.3f}, test acc {:.2f}\n", r.epoch, r.seconds, r.train_loss,
               r.test.value());
    std::fflush(stdout);
    if (log) {
      log->write({{"event", "epoch"},
                  {"epoch", r.epoch},
                  {"seconds", r.seconds},
                  {"train_loss", r.train_loss},
                  {"test_acc", r.test.value()},
                  {"test_correct", r.test.correct},
                  {"test_total", r.test.total}});
    }
    plotted.push_back({static_cast<int>(r.epoch), r.train_loss, r.test.value()});
    if (!o.plot.empty()) {
      write_training_plot(o.plot, plotted,
                          {.title = o.model + " on " + where, .epochs = static_cast<int>(o.epochs)});
    }
  };

  TrainingResult result;
  auto trace = o.trace.empty() ? nullptr : std::make_shared<Trace>();
  if (trace) job.runtime->engine().set_trace(trace);
  {
    StopOnSignal stop(trainer);
    result = trainer.train();
  }
  if (trace) {
    job.runtime->engine().set_trace(nullptr);
    std::ostringstream timeline;
    trace->write_json(timeline);
    write_file_atomically(o.trace, timeline.str());
  }
  bar.reset();
  start();
  double accuracy = 0;
  if (!result.stopped) {
    // Without an epoch (none asked for, or all done before): that of the weights as they are.
    bool trained = !result.epochs.empty();
    accuracy = trained ? result.epochs.back().test.value() : trainer.evaluate().value();
    fmt::print("test acc: {:.2f}, {:.1f} sec/epoch on {}\n", accuracy,
               trained ? seconds / static_cast<double>(result.epochs.size()) : 0.0, where);
  }
  if (!o.export_file.empty()) save_weights(o.export_file, *net);
  if (log && (!result.stopped || net->parameters()[0].shape_known())) {
    log->write({{"event", "end"},
                {"steps", result.steps},
                {"test_acc", accuracy},
                {"weights_sha256", weights_sha256(*net)}});
  }
  if (result.stopped) {
    notice(fmt::format("interrupted at step {}{}", result.steps,
                       o.save.empty() ? "" : "; the checkpoint is in " + o.save));
    return 130;
  }
  return 0;
}

}  // namespace

Command add_train(CLI::App& parent) {
  auto* app = parent.add_subcommand("train", "Train a model on Fashion-MNIST");
  auto options = std::make_shared<TrainOptions>();
  add_options(*app, *options);
  return [options] { return train(*options); };
}

}  // namespace lockstep::app
