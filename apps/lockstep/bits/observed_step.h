// Compares what the operations of one step wrote in two runs, and finds the first difference.
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

// Where something was written: in run "A" or "B", in which rank, and on which device.
struct Source {
  std::string run;
  std::int64_t rank = 0, ranks = 1;
  std::string device = {};

  // Returns "A"; with the rank and the device if `beside` is in the same run.
  std::string name(const Source& beside) const;
};

// Identifies what an operation wrote: see train/step_watch.h.
struct OperationKey {
  std::string direction, module, operation;
  int occurrence = 0, shard = -1, output = 0;
  auto operator<=>(const OperationKey&) const = default;

  static OperationKey of(const nlohmann::json& record);
  nlohmann::json value() const { return {direction, module, operation, occurrence, shard, output}; }
  // Returns the key of the same operation, for all shards.
  OperationKey stage() const { return {direction, module, operation, occurrence, shard < 0 ? -1 : 0, 0}; }
  // Returns the key of all calls of the operation for the same shard.
  OperationKey calls() const { return {direction, module, operation, 0, shard, 0}; }
  // Returns a text for people; `shards` is the number of shards.
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
  // The records of one rank of a run must come in order; those of A's rank 0 must come first.
  void add(const Source& source, const nlohmann::json& record);
  // Returns the first difference, in the order of operations and then of shards, which no layout changes.
  std::optional<OperationDifference> first_difference() const;

 private:
  bool comparable(const OperationKey& key) const;

  std::map<OperationKey, std::vector<Written>> written_;
  // The number of calls on each device of each rank of each run.
  std::map<OperationKey, std::map<std::tuple<std::string, std::int64_t, std::string>, int>> calls_;
  std::map<OperationKey, std::size_t> stages_;  // in order of appearance
};

}  // namespace lockstep::app
