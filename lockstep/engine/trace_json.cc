// Trace::write_json: Chrome's trace-event format ("Trace Event Format", Google, 2016).
#include <algorithm>
#include <map>
#include <ostream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/trace.h"

namespace lockstep {
namespace {

// A JSON string (RFC 8259, section 7), including the quotes.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result += '"';
}

class EventWriter {
 public:
  EventWriter(std::ostream& out, const std::vector<Trace::LaneName>& lanes) : out_(out), lanes_(lanes) {
    out_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
    name_lanes();
  }

  // Writes a slice and the counters at its beginning. If the lane is idle after it, writes a queue of 0 at its end.
  void write_task(const TraceRecord& task, bool idle_after) {
    write("X", json_string(task.name), task.lane, task.begin_ns,
          fmt::format(R"("dur":{:.3f})", static_cast<double>(task.end_ns - task.begin_ns) * 1e-3));
    const std::string queue = "queue of " + lanes_[task.lane].name;
    write_counter(queue, "tasks", task.lane, task.begin_ns, task.queued);
    if (idle_after) write_counter(queue, "tasks", task.lane, task.end_ns, 0);
    if (task.device_bytes >= 0) {
      write_counter("memory in use", "bytes", task.lane, task.begin_ns, task.device_bytes);
    }
  }

  // An arrow from the end of one task to the beginning of the other.
  void write_arrow(const TraceRecord& from, const TraceRecord& to) {
    const std::string id = fmt::format(R"("cat":"dependency","id":{})", to.order);
    // An arrow belongs to the slice that contains its start, and a slice does not contain its own end.
    write("s", "\"held up\"", from.lane, std::max(from.begin_ns, from.end_ns - 1), id);
    write("f", "\"held up\"", to.lane, to.begin_ns, id + R"(,"bp":"e")");
  }

  void finish() { out_ << "\n]}\n"; }

 private:
  void name_lanes() {
    std::map<std::string, int> processes;  // numbered in the order of their first lanes
    for (int lane = 0; lane < static_cast<int>(lanes_.size()); ++lane) {
      const std::string& device = lanes_[lane].device;
      const auto [process, is_new] = processes.emplace(device, static_cast<int>(processes.size()));
      process_of_.push_back(process->second);
      if (is_new) {
        write_name(lane, "process_name", R"("name":)" + json_string(device));
        write_name(lane, "process_sort_index", fmt::format(R"("sort_index":{})", process->second));
      }
      write_name(lane, "thread_name", R"("name":)" + json_string(lanes_[lane].name));
      write_name(lane, "thread_sort_index", fmt::format(R"("sort_index":{})", lane));
    }
  }
  void write_name(int lane, const char* what, const std::string& value) {
    write("M", json_string(what), lane, 0, R"("args":{)" + value + "}");
  }

  // Writes the counter if its value has changed.
  void write_counter(const std::string& name, const char* unit, int lane, std::int64_t ns, std::int64_t value) {
    const auto [last, is_new] = counters_.try_emplace({process_of_[lane], name}, value);
    if (!is_new && std::exchange(last->second, value) == value) return;
    write("C", json_string(name), lane, ns, fmt::format(R"("args":{{"{}":{}}})", unit, value));
  }

  void write(const char* phase, const std::string& name, int lane, std::int64_t ns, const std::string& rest) {
    out_ << separator_
         << fmt::format(R"({{"ph":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},{}}})", phase, name, process_of_[lane],
                        lane, static_cast<double>(ns) * 1e-3, rest);
    separator_ = ",\n";
  }

  std::ostream& out_;
  const std::vector<Trace::LaneName>& lanes_;
  std::vector<int> process_of_;
  std::map<std::pair<int, std::string>, std::int64_t> counters_;  // their last values
  const char* separator_ = "\n";
};

}  // namespace

void Trace::write_json(std::ostream& out) const {
  // Read the records before the lanes, so that each record's lane is listed.
  const std::vector<TraceRecord> tasks = records();
  const std::vector<LaneName> names = lanes();
  EventWriter writer(out, names);
  std::unordered_map<std::int64_t, const TraceRecord*> by_order;
  for (const TraceRecord& task : tasks) by_order[task.order] = &task;
  // The lane was idle between two tasks if each was the only one queued when it began.
  std::vector<bool> idle_after(tasks.size()), next_finds_none(names.size(), true);
  for (std::size_t i = tasks.size(); i-- > 0;) {
    const bool alone = tasks[i].queued == 1;
    idle_after[i] = alone && next_finds_none[tasks[i].lane];
    next_finds_none[tasks[i].lane] = alone;
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TraceRecord& task = tasks[i];
    writer.write_task(task, idle_after[i]);
    const auto cause = by_order.find(task.waited_for);
    if (task.waited_for >= 0 && cause != by_order.end()) writer.write_arrow(*cause->second, task);
  }
  writer.finish();
}

}  // namespace lockstep
