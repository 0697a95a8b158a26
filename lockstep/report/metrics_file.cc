#include "lockstep/report/metrics_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/version.h"
#include "lockstep/comm/link_traffic.h"
#include "lockstep/engine/engine.h"
#include "lockstep/report/prometheus_text.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

std::filesystem::path metrics_file(const std::filesystem::path& path, int rank) {
  std::filesystem::path file = path;
  if (rank == 0) return file;
  return file.replace_extension(fmt::format("rank{}{}", rank, file.extension().string()));
}

MetricsFile::MetricsFile(const Trainer& trainer, const std::filesystem::path& path)
    : trainer_(trainer), file_(metrics_file(path, trainer.communicator().rank())) {}

void MetricsFile::start(const TrainingStart& start) {
  const TrainingPosition& at = start.position;
  last_.step = at.step;
  last_.epoch = std::max(at.epoch, std::min<std::int64_t>(at.epoch + 1, trainer_.options().epochs));  // it may be done
  if (!at.epochs.empty()) epoch_ = at.epochs.back();
}

void MetricsFile::step(const StepReport& report) {
  last_ = report;
  examples_ += static_cast<double>(report.samples);
  if (std::chrono::steady_clock::now() - written_ >= std::chrono::seconds(1)) write();
}

void MetricsFile::epoch(const EpochReport& report) {
  epoch_ = report;
  write();
}

std::string MetricsFile::text() const {
  using Labels = std::vector<std::pair<std::string, std::string>>;
  const TrainerOptions& options = trainer_.options();
  Communicator& ranks = trainer_.communicator();
  const std::string rank = fmt::format("{}", ranks.rank());
  const Recipe::Value* const named = trainer_.recipe().find("model");
  const std::string* const model = named ? named->as<std::string>() : nullptr;
  const auto with = [&](Labels more) {
    more.insert(more.begin(), {"rank", rank});
    return more;
  };
  std::vector<PrometheusMetric> all;
  const auto add = [&](std::string name, std::string help, bool counter, double value) {
    all.push_back({std::move(name), std::move(help), counter, {{with({}), value}}});
  };
  all.push_back({"lockstep_run_info",
                 "The run; its value is always 1.",
                 false,
                 {{with({{"recipe", recipe_hash(trainer_.recipe())},
                         {"model", model ? *model : ""},
                         {"version", LOCKSTEP_VERSION}}),
                   1}}});
  add("lockstep_steps_total", "Steps of the whole run, also before it was resumed.", true,
      static_cast<double>(last_.step));
  add("lockstep_epoch", "The epoch in progress, from 1.", false, static_cast<double>(last_.epoch));
  add("lockstep_epochs_planned", "The number of epochs of --epochs.", false, static_cast<double>(options.epochs));
  add("lockstep_examples_total", "Examples of all ranks that this process has seen in training.", true, examples_);
  if (examples_ > 0) {
    add("lockstep_loss", "Mean loss of the global batch of the last step.", false, last_.loss);
    add("lockstep_learning_rate", "Of the last step.", false, last_.learning_rate);
    add("lockstep_images_per_second", "Examples of all ranks in a second, over the last few steps.", false,
        last_.images_per_second);
  }
  if (epoch_.epoch > 0) {
    add("lockstep_train_loss", "Mean loss of the last finished epoch.", false, epoch_.train_loss);
    PrometheusMetric tests{"lockstep_test", "Metrics of the test data after the last finished epoch.", false, {}};
    if (epoch_.test.total > 0) tests.samples.push_back({with({{"metric", "accuracy"}}), epoch_.test.value()});
    for (const MetricResult& m : epoch_.metrics) {
      if (m.name != "accuracy" && m.table.empty()) tests.samples.push_back({with({{"metric", m.name}}), m.value});
    }
    all.push_back(std::move(tests));
  }

  PrometheusMetric busy{
      "lockstep_lane_busy_seconds_total", "Time in which a lane of a device had a task to run.", true, {}};
  for (const LaneCounters& lane : state_of(options.devices.at(0), "metrics file").engine->lane_counters()) {
    busy.samples.push_back(
        {with({{"device", lane.device}, {"lane", lane.name}}), std::chrono::duration<double>(lane.busy).count()});
  }
  all.push_back(std::move(busy));
  PrometheusMetric memory{"lockstep_device_memory_bytes", "Memory that tensors hold on a device.", false, {}};
  for (const Device device : options.devices) {
    const MemoryCounters used = state_of(device, "metrics file").allocator->counters();
    memory.samples.push_back({with({{"device", device.str()}}), static_cast<double>(used.used_bytes)});
  }
  all.push_back(std::move(memory));
  const LinkTraffic traffic = ranks.alone() ? LinkTraffic() : link_traffic(ranks.group());
  if (!traffic.sent_bytes.empty()) {
    add("lockstep_waiting_seconds_total",
        "Time in which threads of this rank waited in exchanges for other ranks and for their data.", true,
        std::chrono::duration<double>(traffic.exchanging).count());
    PrometheusMetric links{"lockstep_link_sent_bytes_total",
                           "Bytes sent to another rank, without what it reads in shared memory and without NCCL's.",
                           true,
                           {}};
    for (std::size_t peer = 0; peer < traffic.sent_bytes.size(); ++peer) {
      if (static_cast<int>(peer) == ranks.rank()) continue;
      links.samples.push_back(
          {with({{"peer", fmt::format("{}", peer)}}), static_cast<double>(traffic.sent_bytes[peer])});
    }
    all.push_back(std::move(links));
  }
  add("lockstep_up_seconds", "Since this process began to train.", false,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  add("lockstep_updated_timestamp_seconds", "When this file was written, in seconds since 1970.", false,
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  return prometheus_text(all);
}

void MetricsFile::write() {
  written_ = std::chrono::steady_clock::now();
  write_file_atomically(file_, text());
}

}  // namespace lockstep
