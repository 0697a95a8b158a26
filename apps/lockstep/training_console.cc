#include "apps/lockstep/training_console.h"

#include <algorithm>
#include <cstdio>

#include "apps/lockstep/confusion_matrix.h"
#include "apps/lockstep/output.h"
#include "lockstep/base/count_of.h"

namespace lockstep::app {
namespace {

// Returns "[cpu:0, cpu:1]", or "16 CPU devices".
std::string short_places(const std::vector<Device>& devices) {
  constexpr std::size_t kMostNames = 4;
  if (devices.size() <= kMostNames) return str(devices);
  const auto gpus = std::ranges::count(devices, DeviceKind::cuda, &Device::kind);
  if (gpus == 0) return fmt::format("{} CPU devices", devices.size());
  return fmt::format("{} {}devices", devices.size(), gpus == std::ssize(devices) ? "GPU " : "");
}

// Does not report errors: a failed write shows at the program's end, a closed pipe by its signal. The training goes on.
void say(const std::string& text) {
  print_text(stdout, text);
  std::fflush(stdout);
}

// Returns ", with 8 cores each": a scheduler may bind each rank to fewer cores than the user believes.
std::string describe_cores(const std::vector<std::int64_t>& of_ranks) {
  if (of_ranks.size() < 2) return "";
  const auto [least, most] = std::ranges::minmax(of_ranks);
  if (least == most) return fmt::format(", with {} each", count_of(least, "core"));
  return fmt::format(", with {} to {} cores each", least, most);
}

// Returns "recipe 5f56616c: seed 0, 8 shards, batch 256, sgd at 0.1, f32", and the idle cores.
std::string recipe_line(const TrainOptions& options, const ToolJob& job, const Recipe& recipe) {
  std::string shards = count_of(job.shards, "shard");
  const bool gpus = job.devices()[0].kind() == DeviceKind::cuda;
  if (gpus && options.trainer.split.shards == 0)
    shards += " (one for each GPU: the bits depend on their number, unless --shards is given)";
  const std::string idle = idle_cores(options, job);
  return fmt::format("recipe {:.8}: seed {}, {}, batch {}, {} at {}, {}{}", recipe_hash(recipe), options.seed, shards,
                     options.trainer.batch_size, options.optimizer, options.lr, name(job.dtype),
                     idle.empty() ? "" : "; " + idle);
}

}  // namespace

std::string run_title(const TrainOptions& options, const ToolJob& job) {
  std::string title = options.model.name + " on " + short_places(job.devices());
  if (job.world_size() > 1) title += fmt::format(" in each of {} ranks", job.world_size());
  return title;
}

TrainingConsole::TrainingConsole(const TrainOptions& options, const ToolJob& job, const Recipe& recipe,
                                 const DataSource& data, const std::vector<std::int64_t>& cores)
    : options_(options), job_(job),
      examples_(data.train->size() - (options.trainer.drop_last ? data.train->size() % options.trainer.batch_size : 0)),
      class_names_(class_names(data.schema)), where_(str(job.devices())) {
  if (job.world_size() > 1) where_ += fmt::format(" in each of {} ranks", job.world_size());
  say(fmt::format("running on: {}{}\n{}\n", where_, describe_cores(cores), recipe_line(options, job, recipe)));
}

void TrainingConsole::step(const StepReport& r) {
  if (!bar_) {
    const std::int64_t most =
        options_.trainer.max_steps > 0 ? options_.trainer.max_steps * options_.trainer.batch_size : INT64_MAX;
    const std::int64_t later = std::min(options_.trainer.epochs * examples_, most) - r.epoch * examples_;
    bar_.emplace(stderr, fmt::format("epoch {}/{}", r.epoch, options_.trainer.epochs), examples_,
                 std::max<std::int64_t>(later, 0));
  }
  bar_->update(std::min(r.batch * options_.trainer.batch_size, examples_));
  part_ = static_cast<double>(r.batch) / static_cast<double>(r.batches);
}

void TrainingConsole::epoch(const EpochReport& r) {
  bar_.reset();
  epochs_ += part_;
  seconds_ += r.seconds;
  data_seconds_ += r.data_seconds;
  std::string others;
  for (const MetricResult& m : r.metrics) {
    if (m.name != "accuracy" && m.table.empty()) others += fmt::format(", {} {:.3f}", m.name, m.value);
  }
  say(fmt::format("epoch {}, time {:.1f} sec, train loss {:.3f}{}{}\n", r.epoch, r.seconds, r.train_loss,
                  options_.is_regression() ? "" : fmt::format(", test acc {:.2f}", r.test.value()), others));
}

// Reports the failure, and the training goes on: a full disk must not end it.
void TrainingConsole::failed(const ObserverFailure& failure) {
  bar_.reset();
  notice(fmt::format("{}; the training goes on without {}", failure.error, failure.observer));
}

void TrainingConsole::print(const TrainingResult& result) const {
  const double accuracy = result.last.test.value();
  if (!result.stopped) {
    const std::string speed = epochs_ > 0 ? fmt::format(", {:.1f} sec/epoch", seconds_ / epochs_) : "";
    std::string what = fmt::format("test acc: {:.2f}", accuracy);
    if (options_.is_regression()) {
      what.clear();
      for (const MetricResult& m : result.last.metrics) {
        what += fmt::format("{}test {}: {:.4g}", what.empty() ? "" : ", ", m.name, m.value);
      }
    }
    say(fmt::format("{}{} on {}\n", what, speed, where_));
    // On GPUs the time is only an upper bound, which would mislead.
    const bool gpus = job_.devices()[0].kind() == DeviceKind::cuda;
    if (!gpus && data_seconds_ > 1 && data_seconds_ > 0.05 * seconds_) {
      notice(
          fmt::format("the devices waited for data in {:.0f} % of the time; smaller pictures, or more --workers where "
                      "cores are idle, would help",
                      100 * data_seconds_ / seconds_));
    }
  }
  for (const MetricResult& m : result.last.metrics) {
    if (!m.table.empty()) say(confusion_text(m.name, m.table, shown_names(class_names_)));
  }
}

}  // namespace lockstep::app
