#include "run_report.h"

#include <cstdio>

#include "lockstep/checkpoint/weights.h"

namespace lockstep::app {

RunReport::RunReport(const TrainOptions& options, const Job& job, const Module& net, Trainer& trainer,
                     std::int64_t examples)
    : options_(options), job_(job), net_(net), trainer_(trainer), examples_(examples), where_(str(job.devices)) {
  if (job.world_size() > 1) where_ += fmt::format(" in each of {} ranks", job.world_size());
  if (!options.log.empty()) log_.emplace(options.log, LogWriterOptions{.append = !options.resume.empty()});
  fmt::print("running on: {}\n", where_);
  std::fflush(stdout);
  trainer.on_step = [this](const StepReport& r) { step(r); };
  trainer.on_epoch = [this](const EpochReport& r) { epoch(r); };
}

// The number of parameters is known when the first batch has settled all shapes.
void RunReport::start() {
  if (started_ || !log_) return;
  started_ = true;
  std::vector<std::string> names;
  for (Device d : job_.devices) names.emplace_back(d.name());
  nlohmann::ordered_json event = {{"event", "start"},
                                  {"devices", names},
                                  {"shards", job_.shards},
                                  {"world_size", job_.world_size()},
                                  {"parameters", net_.parameter_count()}};
  if (job_.communicator) event["backend"] = job_.communicator->backend_name();
  event.update(trainer_.recipe());
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
  fmt::print("epoch {}, time {:.1f} sec, train loss {:.3f}, test acc {:.2f}\n", r.epoch, r.seconds, r.train_loss,
             r.test.value());
  std::fflush(stdout);
  if (log_) {
    log_->write({{"event", "epoch"},
                 {"epoch", r.epoch},
                 {"seconds", r.seconds},
                 {"train_loss", r.train_loss},
                 {"test_acc", r.test.value()},
                 {"test_correct", r.test.correct},
                 {"test_total", r.test.total}});
  }
  plotted_.push_back({static_cast<int>(r.epoch), r.train_loss, r.test.value()});
  if (!options_.plot.empty()) {
    write_training_plot(options_.plot, plotted_,
                        {.title = options_.model + " on " + where_, .epochs = static_cast<int>(options_.epochs)});
  }
}

void RunReport::finish(const TrainingResult& result) {
  bar_.reset();
  start();
  double accuracy = result.epochs.empty() ? 0 : result.epochs.back().test.value();
  if (!result.stopped) {
    auto epochs = static_cast<double>(result.epochs.size());
    fmt::print("test acc: {:.2f}, {:.1f} sec/epoch on {}\n", accuracy,
               seconds_ > 0 ? seconds_ / epochs : 0.0, where_);
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
