// What operations of one step wrote in two runs, and the first that differs.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep::app {

// "A" or "B", and where in it.
struct Source {
  std::string run;
  std::int64_t rank = 0, ranks = 1;
  std::string device = {};

  // "A"; with the rank and the device if `beside` is of the same run.
  std::string name(const Source& beside) const;
};

// The name of what an operation wrote: see train/step_watch.h.
struct OperationKey {
  std::string direction, module, operation;
  int occurrence = 0, shard = -1, output = 0;
  auto operator<=>(const OperationKey&) const = default;

  static OperationKey of(const nlohmann::json& record);
  nlohmann::json value() const { return {direction, module, operation, occurrence, shard, output}; }
  // The same operation of all shards.
  OperationKey stage() const { return {direction, module, operation, occurrence, shard < 0 ? -1 : 0, 0}; }
  // All calls of one shard.
  OperationKey calls() const { return {direction, module, operation, 0, shard, 0}; }
  // For people; `shards` is the number of shards.
  std::string text(int shards) const;
};

// What an operation wrote, in one place.
struct Written {
  Source source;
  nlohmann::json record;
  std::string hash() const { return record.at("hash"); }
};

struct OperationDifference {
  OperationKey key;
  Written a, b;  // in two runs, or in two places of one
};

class ObservedStep {
 public:
  // A run's records of one rank come in order, those of A's rank 0 first.
  void add(const Source& source, const nlohmann::json& record);
  // The first that differs, in the order of operations and then of shards, which is one of every layout.
  std::optional<OperationDifference> first_difference() const;

 private:
  bool comparable(const OperationKey& key) const;

  std::map<OperationKey, std::vector<Written>> written_;
  // The number of calls on each device of each rank of each run.
  std::map<OperationKey, std::map<std::tuple<std::string, std::int64_t, std::string>, int>> calls_;
  std::map<OperationKey, std::size_t> stages_;  // in order of appearance
};

}  // namespace lockstep::app
