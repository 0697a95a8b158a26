#include "run_report.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "learning_task.h"
#include "output.h"

namespace lockstep::app {
namespace {

// "[cpu:0, cpu:1]", or "16 CPU devices"
std::string short_places(const std::vector<Device>& devices) {
  constexpr std::size_t kMostNames = 4;
  if (devices.size() <= kMostNames) return str(devices);
  const auto gpus = std::ranges::count(devices, DeviceKind::cuda, &Device::kind);
  if (gpus == 0) return fmt::format("{} CPU devices", devices.size());
  return fmt::format("{} {}devices", devices.size(), gpus == std::ssize(devices) ? "GPU " : "");
}

// A failed write shows at the end of the program, and a closed pipe by its signal; neither ends the training.
void say(const std::string& text) {
  print_text(stdout, text);
  std::fflush(stdout);
}

// ", with 8 cores each": a scheduler may bind each rank to fewer cores than the user believes.
std::string describe_cores(const std::vector<std::int64_t>& of_ranks) {
  if (of_ranks.size() < 2) return "";
  const auto [least, most] = std::ranges::minmax(of_ranks);
  if (least == most) return fmt::format(", with {} core{} each", least, least == 1 ? "" : "s");
  return fmt::format(", with {} to {} cores each", least, most);
}

}  // namespace

RunReport::RunReport(const TrainOptions& options, const ToolJob& job, Module& net, Trainer& trainer,
                     const Examples& data, const Examples& test, const TrainingPosition& start,
                     const std::vector<std::int64_t>& cores)
    : options_(options), job_(job), net_(net), trainer_(trainer),
      examples_(data.data->size() - (options.drop_last ? data.data->size() % options.batch_size : 0)),
      class_names_(data.class_names), where_(str(job.devices())) {
  title_ = options.model + " on " + short_places(job.devices());
  if (job.world_size() > 1) {
    const std::string ranks = fmt::format(" in each of {} ranks", job.world_size());
    where_ += ranks;
    title_ += ranks;
  }
  if (!options.log.empty()) {
    log_.emplace(options.log, start,
                 LoggedRun{.devices = job.devices(),
                           .shards = job.shards,
                           .world_size = job.world_size(),
                           .backend = std::string(job.communicator()->backend_name()),
                           .module = &net,
                           .recipe = &trainer.recipe()});
  }
  plotted_ = start.epochs;
  if (!options.report_folder().empty()) {
    page_.emplace(RunPage::Sources{.options = options,
                                   .job = job,
                                   .net = net,
                                   .trainer = trainer,
                                   .train = data,
                                   .test = test,
                                   .title = title_,
                                   .epochs = plotted_,
                                   .panels = [this] { return panels(); }},
                  start);
  }
  say(fmt::format("running on: {}{}\n{}\n", where_, describe_cores(cores), recipe_line()));
  trainer.on_step = [this](const StepReport& r) { step(r); };
  trainer.on_epoch = [this](const EpochReport& r) { epoch(r); };
  if (!plotted_.empty()) draw_plot();
}

void RunReport::begin(const Timeline* timeline) {
  if (page_) page_->record(timeline);
}

void RunReport::end_timeline() {
  if (page_) page_->end_timeline();
}

void RunReport::fail(const std::string& why) {
  bar_.reset();
  if (page_) page_->fail(why);
  report_page();
}

std::string RunReport::recipe_line() const {
  const Recipe& recipe = trainer_.recipe();
  std::string shards = fmt::format("{} shard{}", job_.shards, job_.shards == 1 ? "" : "s");
  const bool gpus = job_.devices()[0].kind() == DeviceKind::cuda;
  if (gpus && options_.shards == 0)
    shards += " (one for each GPU: the bits depend on their number, unless --shards is given)";
  const std::string idle = idle_cores(options_, job_);
  return fmt::format("recipe {:.8}: seed {}, {}, batch {}, {} at {}, {}{}", recipe_hash(recipe), options_.seed, shards,
                     options_.batch_size, options_.optimizer, options_.lr, name(job_.dtype),
                     idle.empty() ? "" : "; " + idle);
}

void RunReport::step(const StepReport& r) {
  if (log_) log_->step(r);
  report_log();
  if (page_) page_->step(r);
  if (metrics_) metrics_->step(r);
  report_page();
  if (!bar_) {
    const std::int64_t most = options_.max_steps > 0 ? options_.max_steps * options_.batch_size : INT64_MAX;
    const std::int64_t later = std::min(options_.epochs * examples_, most) - r.epoch * examples_;
    bar_.emplace(stderr, fmt::format("epoch {}/{}", r.epoch, options_.epochs), examples_,
                 std::max<std::int64_t>(later, 0));
  }
  bar_->update(std::min(r.batch * options_.batch_size, examples_));
}

void RunReport::epoch(const EpochReport& r) {
  bar_.reset();
  seconds_ += r.seconds;
  data_seconds_ += r.data_seconds;
  std::string others;
  for (const MetricResult& m : r.metrics) {
    if (m.name != "accuracy" && m.table.empty()) others += fmt::format(", {} {:.3f}", m.name, m.value);
  }
  say(fmt::format("epoch {}, time {:.1f} sec, train loss {:.3f}{}{}\n", r.epoch, r.seconds, r.train_loss,
                  options_.is_regression() ? "" : fmt::format(", test acc {:.2f}", r.test.value()), others));
  if (log_) log_->epoch(r);
  report_log();
  plotted_.push_back(r);
  draw_plot();
  if (page_) page_->epoch();
  if (metrics_) metrics_->epoch(r);
  report_page();
}

// A full disk must not cost the training.
void RunReport::report_log() {
  if (log_broken_ || !log_ || log_->error().empty()) return;
  log_broken_ = true;
  bar_.reset();
  notice(log_->error() + "; the training goes on without the log");
}

void RunReport::report_page() {
  if (!metrics_broken_ && metrics_ && !metrics_->error().empty()) {
    metrics_broken_ = true;
    bar_.reset();
    notice(fmt::format("--metrics-file: {}; the training goes on", metrics_->error()));
  }
  if (page_broken_ || !page_ || page_->error().empty()) return;
  page_broken_ = true;
  bar_.reset();
  notice(fmt::format("--report: {}", page_->error()));
}

std::vector<PlotPanel> RunReport::panels() const {
  std::vector<PlotPanel> panels = training_panels(plotted_);
  Curve& accuracy = panels[0].curves[0];
  std::vector<PlotPanel> others;
  std::map<std::string, Curve> curves;
  for (const EpochReport& e : plotted_) {
    for (const MetricResult& m : e.metrics) {
      if (m.name != "accuracy" && m.table.empty())
        curves[m.name].points.push_back({static_cast<double>(e.epoch), m.value});
    }
  }
  for (auto& [name, curve] : curves) {
    curve.name = name;
    std::ranges::replace(curve.name, '_', ' ');
    if (name.ends_with("_accuracy")) {
      Curve more = accuracy;
      more.name = curve.name;
      more.points = curve.points;
      panels[0].curves.push_back(std::move(more));
    } else {
      curve.best = CurveBest::smallest;
      curve.decimals = 3;
      others.push_back({{curve}});
    }
  }
  // A text is judged by its perplexity, numbers by their error.
  const bool by_others = options_.is_language_model() || options_.is_regression();
  if (by_others && !others.empty()) panels.erase(panels.begin());
  panels.insert(by_others ? panels.begin() : panels.end(), others.begin(), others.end());
  return panels;
}

void RunReport::draw_plot() {
  if (options_.plot.empty()) return;
  try {
    write_plot(options_.plot, panels(),
               {.title = title_, .x = {.low = 1, .high = std::max(1.0, static_cast<double>(options_.epochs))}});
    plot_error_.clear();
  } catch (const Error& error) {
    if (plot_error_.empty()) {
      bar_.reset();
      notice(fmt::format("{}; the training goes on without the plot", error.what()));
    }
    plot_error_ = error.what();
  }
}

void RunReport::finish(const TrainingResult& result) {
  bar_.reset();
  double accuracy = result.epochs.empty() ? 0 : result.epochs.back().test.value();
  if (!result.stopped) {
    auto epochs = static_cast<double>(result.epochs.size());
    const std::string speed = seconds_ > 0 ? fmt::format(", {:.1f} sec/epoch", seconds_ / epochs) : "";
    std::string what = fmt::format("test acc: {:.2f}", accuracy);
    if (options_.is_regression() && !result.epochs.empty()) {
      what.clear();
      for (const MetricResult& m : result.epochs.back().metrics) {
        what += fmt::format("{}test {}: {:.4g}", what.empty() ? "" : ", ", m.name, m.value);
      }
    }
    say(fmt::format("{}{} on {}\n", what, speed, where_));
    // GPUs' share is an upper bound, which would mislead.
    const bool gpus = job_.devices()[0].kind() == DeviceKind::cuda;
    if (!gpus && data_seconds_ > 1 && data_seconds_ > 0.05 * seconds_) {
      notice(
          fmt::format("the devices waited for data in {:.0f} % of the time; smaller pictures, or more --workers where "
                      "cores are idle, would help",
                      100 * data_seconds_ / seconds_));
    }
  }
  if (!result.epochs.empty()) {
    for (const MetricResult& m : result.epochs.back().metrics) {
      if (!m.table.empty()) say(confusion_text(m.name, m.table, shown_names(class_names_)));
    }
  }
  if (log_) log_->end(result, net_);
  report_log();
  if (page_) page_->finish(result);
  report_page();
  std::fflush(stdout);
  if (log_broken_) notice("the log is incomplete: " + log_->error());
  if (!plot_error_.empty()) notice("the plot is not up to date: " + plot_error_);
}

}  // namespace lockstep::app
