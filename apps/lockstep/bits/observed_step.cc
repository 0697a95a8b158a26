#include "apps/lockstep/bits/observed_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::app {

std::string Source::name(const Source& beside) const {
  std::string text = run;
  if (ranks > 1 && run == beside.run) text += fmt::format(", rank {}", rank);
  if (run == beside.run && rank == beside.rank) text += fmt::format(", {}", device);
  return text;
}

OperationKey OperationKey::of(const nlohmann::json& record) {
  const nlohmann::json& k = record.at("operation");
  return {k.at(0).get<std::string>(), k.at(1).get<std::string>(), k.at(2).get<std::string>(),
          k.at(3).get<int>(),         k.at(4).get<int>(),         k.at(5).get<int>()};
}

std::string OperationKey::text(int shards) const {
  std::string text;
  if (direction == "batch") {
    text = fmt::format("the data, {} of the batch", module);
  } else if (direction == "loss") {
    text = "the loss";
  } else if (direction == "gradient") {
    text = fmt::format("the sum of the gradients of {} over all shards", module);
  } else if (direction == "state") {
    text = fmt::format("{} after the step", module);
  } else {
    text = fmt::format("{} {}, {} pass", operation, module.empty() ? "outside of modules" : "of module " + module,
                       direction);
    if (occurrence > 0) text += fmt::format(", call {}", occurrence + 1);
    if (output > 0) text += fmt::format(", result {}", output + 1);
  }
  if (shard >= 0) text += fmt::format(", shard {} of {}", shard, shards);
  return text;
}

void ObservedStep::add(const Source& source, const nlohmann::json& record) {
  const OperationKey key = OperationKey::of(record);
  Source place = source;
  place.device = record.at("device");
  written_[key].push_back({place, record});
  int& calls = calls_[key.calls()][{place.run, place.rank, place.device}];
  calls = std::max(calls, key.occurrence + 1);
  stages_.try_emplace(key.stage(), stages_.size());
}

std::optional<OperationDifference> ObservedStep::first_difference() const {
  std::vector<const std::pair<const OperationKey, std::vector<Written>>*> order;
  for (const auto& entry : written_) {
    if (comparable(entry.first)) order.push_back(&entry);
  }
  std::ranges::sort(order, {}, [&](const auto* entry) {
    return std::tuple(stages_.at(entry->first.stage()), entry->first.shard, entry->first.output);
  });
  for (const auto* entry : order) {
    const std::vector<Written>& all = entry->second;
    for (const Written& other : all) {
      if (other.hash() != all[0].hash()) return OperationDifference{entry->first, all[0], other};
    }
  }
  return std::nullopt;
}

// Compares only operations that all places with any call call equally often, in both runs. Skips copies of one layout.
bool ObservedStep::comparable(const OperationKey& key) const {
  std::set<std::string> runs;
  std::set<int> counts;
  for (const auto& [place, count] : calls_.at(key.calls())) {
    runs.insert(std::get<0>(place));
    counts.insert(count);
  }
  return runs.size() == 2 && counts.size() == 1;
}

}  // namespace lockstep::app
