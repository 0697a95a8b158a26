#include "lockstep/train/training_log.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/train/metrics.h"

namespace lockstep {
namespace {

// Returns whether a line of the log is at or before the position. An epoch that max_steps cut short is reported again.
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

}  // namespace

nlohmann::ordered_json epoch_event(const EpochReport& report) {
  nlohmann::ordered_json event = {{"event", "epoch"},
                                  {"epoch", report.epoch},
                                  {"seconds", report.seconds},
                                  {"data_seconds", report.data_seconds},
                                  {"train_loss", report.train_loss}};
  if (report.test.total > 0) {
    event["test_acc"] = report.test.value();
    event["test_correct"] = report.test.correct;
    event["test_total"] = report.test.total;
  }
  for (const MetricResult& m : report.metrics) {
    if (m.table.empty()) {
      event["metrics"][m.name] = m.value;
    } else {
      event["metrics"][m.name] = m.table;
    }
  }
  for (const auto& [name, mean] : report.log) event["log"][name] = mean;
  return event;
}

void TrainingLog::start(const TrainingStart& start) {
  start_ = start;
  writer_.emplace(path_, LogWriterOptions{.append = start.position.step > 0, .keep = [&](const nlohmann::json& event) {
                                            return is_before(event, start.position);
                                          }});
}

// Called after the first batch has settled all shapes, which decide the number of parameters.
void TrainingLog::write_start() {
  if (started_) return;
  started_ = true;
  std::vector<std::string> names;
  for (Device d : start_.devices) names.emplace_back(d.name());
  nlohmann::ordered_json event = {{"event", "start"},
                                  {"devices", names},
                                  {"recipe", recipe_hash(*start_.recipe)},
                                  {"shards", start_.shards},
                                  {"world_size", start_.world_size},
                                  {"parameters", start_.module->parameter_count()},
                                  // A process that is alone sends nothing, but readers of the log expect the field.
                                  {"backend", start_.backend}};
  static const std::vector<Metric> kNone;
  for (const Metric& m : start_.metrics ? *start_.metrics : kNone) {
    if (m.smaller_is_better) event["smaller_is_better"].push_back(m.name);
  }
  event.update(parse_json<nlohmann::ordered_json>(start_.recipe->json()));
  writer_->write(event);
}

void TrainingLog::step(const StepReport& r) {
  write_start();
  nlohmann::ordered_json event = {
      {"event", "step"},    {"step", r.step},        {"epoch", r.epoch},
      {"loss", r.loss},     {"lr", r.learning_rate}, {"images_per_second", r.images_per_second},
      {"shares", r.shares}, {"samples", r.samples},  {"seconds", r.seconds}};
  if (r.loss_scale) event["loss_scale"] = *r.loss_scale;
  for (const auto& [name, value] : r.log) event["log"][name] = value;
  writer_->write(event);
}

void TrainingLog::epoch(const EpochReport& r) { writer_->write(epoch_event(r)); }

void TrainingLog::end(const TrainingResult& result) {
  const Module& module = *start_.module;
  write_start();
  bool known = true;
  for (const Parameter& p : module.parameters()) known = known && p.shape_known();
  if (result.stopped && !known) return;
  nlohmann::ordered_json event = {{"event", "end"}, {"steps", result.steps}};
  if (result.stopped) event["stopped"] = true;
  if (result.last.test.total > 0) event["test_acc"] = result.last.test.value();
  event["weights_sha256"] = weights_sha256(module);
  writer_->write(event);
}

}  // namespace lockstep
