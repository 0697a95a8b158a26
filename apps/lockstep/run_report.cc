#include "run_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/log_writer.h"

namespace lockstep::app {
namespace {

// Whether a line of the log comes before the position. An epoch that --max-steps cut short is reported again.
bool is_before(const nlohmann::json& event, const TrainingPosition& position) {
  const auto at_most = [&](const char* name, std::int64_t most) {
    const auto found = event.find(name);
    return found == event.end() || !found->is_number_integer() || *found <= most;
  };
  const auto kind = event.find("event");
  const bool ends_epoch = kind != event.end() && *kind == "epoch";
  return at_most("step", position.step) && at_most("steps", position.step) &&
         (!ends_epoch || at_most("epoch", position.epoch));
}

EpochResult to_plot(std::int64_t epoch, double train_loss, const Accuracy& test) {
  return {static_cast<int>(epoch), train_loss, test.value()};
}

}  // namespace

RunReport::RunReport(const TrainOptions& options, const Job& job, const Module& net, Trainer& trainer,
                     std::int64_t examples, const TrainingPosition& start)
    : options_(options), job_(job), net_(net), trainer_(trainer), examples_(examples), where_(str(job.devices)) {
  if (job.world_size() > 1) where_ += fmt::format(" in each of {} ranks", job.world_size());
  if (!options.log.empty()) {
    log_.emplace(options.log,
                 LogWriterOptions{.append = !options.resume.empty(),
                                  .keep = [&](const nlohmann::json& event) { return is_before(event, start); }});
  }
  for (const EpochRecord& e : start.epochs)
    plotted_.push_back(to_plot(e.epoch, e.train_loss, {e.test_correct, e.test_total}));
  fmt::print("running on: {}\n{}\n", where_, recipe_line());
  std::fflush(stdout);
  trainer.on_step = [this](const StepReport& r) { step(r); };
  trainer.on_epoch = [this](const EpochReport& r) { epoch(r); };
  if (!plotted_.empty()) draw_plot();
}

std::string RunReport::recipe_line() const {
  const Recipe& recipe = trainer_.recipe();
  std::string shards = fmt::format("{} shard{}", job_.shards, job_.shards == 1 ? "" : "s");
  const bool gpus = job_.devices[0].kind() == DeviceKind::cuda;
  if (gpus && options_.shards == 0)
    shards += " (one for each GPU: the bits depend on their number, unless --shards is given)";
  const std::string idle = idle_cores(options_, job_);
  return fmt::format("recipe {:.8}: seed {}, {}, batch {}, {} at {}, {}{}", recipe_hash(recipe), options_.seed, shards,
                     options_.batch_size, options_.optimizer, options_.lr, name(job_.dtype),
                     idle.empty() ? "" : "; " + idle);
}

// The number of parameters is known when the first batch has settled all shapes.
void RunReport::start() {
  if (started_ || !log_) return;
  started_ = true;
  std::vector<std::string> names;
  for (Device d : job_.devices) names.emplace_back(d.name());
  nlohmann::ordered_json event = {{"event", "start"},
                                  {"devices", names},
                                  {"recipe", recipe_hash(trainer_.recipe())},
                                  {"shards", job_.shards},
                                  {"world_size", job_.world_size()},
                                  {"parameters", net_.parameter_count()},
                                  // A process that is alone sends nothing; readers of the log find the field anyway.
                                  {"backend", job_.communicator ? job_.communicator->backend_name() : "host"}};
  event.update(nlohmann::ordered_json::parse(trainer_.recipe().json()));
  log_->write(event);
}

void RunReport::step(const StepReport& r) {
  start();
  if (log_) {
    nlohmann::ordered_json event = {{"event", "step"},
                                    {"step", r.step},
                                    {"epoch", r.epoch},
                                    {"loss", r.loss},
                                    {"images_per_second", r.images_per_second},
                                    {"shares", r.shares},
                                    {"samples", r.samples},
                                    {"seconds", r.seconds}};
    if (r.loss_scale) event["loss_scale"] = *r.loss_scale;
    log_->write(event);
  }
  if (!bar_) bar_.emplace(stderr, fmt::format("epoch {}/{}", r.epoch, options_.epochs), examples_);
  bar_->update(std::min(r.batch * options_.batch_size, examples_));
}

void RunReport::epoch(const EpochReport& r) {
  bar_.reset();
  seconds_ += r.seconds;
  std::string others;
  for (const MetricResult& m : r.metrics) {
    if (m.name != "accuracy" && m.table.empty()) others += fmt::format(", {} {:.3f}", m.name, m.value);
  }
  fmt::print("epoch {}, time {:.1f} sec, train loss {:.3f}, test acc {:.2f}{}\n", r.epoch, r.seconds, r.train_loss,
             r.test.value(), others);
  std::fflush(stdout);
  if (log_) log_->write(epoch_event(r));
  plotted_.push_back(to_plot(r.epoch, r.train_loss, r.test));
  draw_plot();
}

void RunReport::draw_plot() const {
  if (options_.plot.empty()) return;
  write_training_plot(options_.plot, plotted_,
                      {.title = options_.model + " on " + where_, .epochs = static_cast<int>(options_.epochs)});
}

void RunReport::finish(const TrainingResult& result) {
  bar_.reset();
  start();
  double accuracy = result.epochs.empty() ? 0 : result.epochs.back().test.value();
  if (!result.stopped) {
    auto epochs = static_cast<double>(result.epochs.size());
    const std::string speed = seconds_ > 0 ? fmt::format(", {:.1f} sec/epoch", seconds_ / epochs) : "";
    fmt::print("test acc: {:.2f}{} on {}\n", accuracy, speed, where_);
  }
  if (log_ && (!result.stopped || net_.parameters()[0].shape_known())) {
    nlohmann::ordered_json event = {{"event", "end"}, {"steps", result.steps}};
    if (result.stopped) event["stopped"] = true;
    if (!result.epochs.empty()) event["test_acc"] = accuracy;
    event["weights_sha256"] = weights_sha256(net_);
    log_->write(event);
  }
}

}  // namespace lockstep::app
