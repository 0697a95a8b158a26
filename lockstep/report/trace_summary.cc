#include "lockstep/report/trace_summary.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

using Nanoseconds = std::chrono::nanoseconds;

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Adds an interval that begins no earlier than the others.
void unite(std::vector<Interval>& united, Interval next) {
  if (!united.empty() && next.begin <= united.back().end) {
    united.back().end = std::max(united.back().end, next.end);
  } else {
    united.push_back(next);
  }
}

std::int64_t length(const std::vector<Interval>& united) {
  std::int64_t sum = 0;
  for (const Interval& interval : united) sum += interval.end - interval.begin;
  return sum;
}

std::int64_t common_length(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    sum += std::max<std::int64_t>(0, std::min(a[i].end, b[k].end) - std::max(a[i].begin, b[k].begin));
    a[i].end < b[k].end ? ++i : ++k;
  }
  return sum;
}

}  // namespace

std::optional<double> TraceSummary::hidden() const {
  if (communication.count() == 0) return {};
  return 1 - static_cast<double>(exposed.count()) / static_cast<double>(communication.count());
}

TraceSummary summarize(const Trace& trace, std::int64_t begin_ns, std::int64_t end_ns) {
  TraceSummary summary;
  const std::vector<TraceRecord> records = trace.records();
  for (const Trace::LaneName& name : trace.lanes()) summary.lanes.push_back({name});
  std::map<std::string, TraceSummary::Operation> operations;
  std::vector<Interval> communicating, computing;
  for (const TraceRecord& record : records) {
    if (record.begin_ns < begin_ns || record.begin_ns >= end_ns) continue;
    const Nanoseconds time(record.end_ns - record.begin_ns);
    TraceSummary::Operation& operation = operations[record.name];
    ++operation.count;
    operation.total += time;
    TraceSummary::Lane& lane = summary.lanes[record.lane];
    ++lane.tasks;
    lane.busy += time;
    ++summary.tasks;
    const Interval interval{record.begin_ns, record.end_ns};
    if (lane.name.name.starts_with("communicate")) unite(communicating, interval);
    if (lane.name.name.starts_with("compute")) unite(computing, interval);
  }
  for (auto& [name, operation] : operations) {
    operation.name = name;
    summary.operations.push_back(std::move(operation));
  }
  std::ranges::stable_sort(summary.operations, std::greater{}, &TraceSummary::Operation::total);
  summary.communication = Nanoseconds(length(communicating));
  summary.exposed = summary.communication - Nanoseconds(common_length(communicating, computing));
  return summary;
}

}  // namespace lockstep
