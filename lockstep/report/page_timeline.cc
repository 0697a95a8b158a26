#include "lockstep/report/page_timeline.h"

#include <algorithm>

#include "lockstep/report/trace_summary.h"

namespace lockstep {
namespace {

int span_color(std::string_view lane, std::string_view task) {
  const auto has = [&](std::string_view part) { return task.find(part) != std::string_view::npos; };
  if (lane.starts_with("communicate")) return 4;
  if (!lane.starts_with("compute")) return 3;
  if (has("backward")) return 1;
  return has("update") || has("sgd") || has("adam") || has("step") ? 2 : 0;
}

double in_seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

PageTimeline describe_timeline(const Trace& trace, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t steps) {
  const std::vector<TraceRecord> records = trace.records();
  // Begins with the first record that is left, because lanes drop their oldest records.
  for (const TraceRecord& r : records) {
    if (r.begin_ns < begin_ns) continue;
    begin_ns = r.begin_ns;
    break;
  }
  const TraceSummary summary = summarize(trace, begin_ns, end_ns);
  const double all = std::max(1e-9, 1e-9 * static_cast<double>(end_ns - begin_ns));
  PageTimeline page{.seconds = all,
                    .hidden_communication = summary.hidden(),
                    .communication = in_seconds(summary.communication) / all,
                    .exposed = in_seconds(summary.exposed) / all};
  for (const TraceSummary::Operation& o : summary.operations) {
    page.operations.push_back({o.name, o.count, in_seconds(o.total)});
  }
  const std::int64_t length = std::max<std::int64_t>(1, (end_ns - begin_ns) / std::max<std::int64_t>(1, steps));
  const std::int64_t from = end_ns - length;
  page.picture_seconds = 1e-9 * static_cast<double>(length);
  std::vector<PageTimeline::Lane> lanes(summary.lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const TraceSummary::Lane& lane = summary.lanes[i];
    lanes[i] = {
        .name = lane.name.device + " " + lane.name.name, .busy = in_seconds(lane.busy) / all, .tasks = lane.tasks};
  }
  for (const TraceRecord& r : records) {
    if (r.end_ns <= from || r.begin_ns >= end_ns) continue;
    const auto lane = static_cast<std::size_t>(r.lane);
    const auto at = [&](std::int64_t ns) {
      return std::clamp(static_cast<double>(ns - from) / static_cast<double>(length), 0.0, 1.0);
    };
    const PageTimeline::Span span{at(r.begin_ns), at(r.end_ns), span_color(summary.lanes[lane].name.name, r.name)};
    std::vector<PageTimeline::Span>& spans = lanes[lane].spans;
    constexpr double kNothing = 0.0004;  // of the picture: the eye sees no gap
    if (!spans.empty() && spans.back().color == span.color && span.begin - spans.back().end < kNothing) {
      spans.back().end = std::max(spans.back().end, span.end);
    } else {
      spans.push_back(span);
    }
  }
  for (PageTimeline::Lane& lane : lanes) {
    if (lane.tasks > 0) page.lanes.push_back(std::move(lane));
  }
  return page;
}

}  // namespace lockstep
