#include <nlohmann/json.hpp>

#include "lockstep/train/log_writer.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

nlohmann::ordered_json epoch_event(const EpochReport& report) {
  nlohmann::ordered_json event = {
      {"event", "epoch"}, {"epoch", report.epoch}, {"seconds", report.seconds}, {"train_loss", report.train_loss}};
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
  return event;
}

}  // namespace lockstep
