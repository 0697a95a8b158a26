#include "lockstep/engine/trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <ostream>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// As JSON wants it (RFC 8259, section 7), with the quotes.
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

}  // namespace

TraceLane::TraceLane(int index, std::string device, std::string name)
    : index_(index), device_(std::move(device)), name_(std::move(name)) {}

void TraceLane::add(const std::string& name, std::int64_t begin_ns, std::int64_t end_ns) noexcept try {
  const std::lock_guard lock(mutex_);
  records_.push_back({name, index_, begin_ns, end_ns});
} catch (const std::bad_alloc&) {
}

Trace::Trace() : start_ns_(steady_ns()) {}

std::shared_ptr<TraceLane> Trace::add_lane(std::string device, std::string name) {
  const std::lock_guard lock(mutex_);
  const int index = static_cast<int>(lanes_.size());
  lanes_.push_back(std::shared_ptr<TraceLane>(new TraceLane(index, std::move(device), std::move(name))));
  return lanes_.back();
}

std::vector<TraceRecord> Trace::records() const {
  std::vector<TraceRecord> all;
  for (const auto& lane : lanes()) {
    const std::lock_guard lock(lane->mutex_);
    all.insert(all.end(), lane->records_.begin(), lane->records_.end());
  }
  for (TraceRecord& record : all) {
    record.begin_ns -= start_ns_;
    record.end_ns -= start_ns_;
  }
  std::ranges::stable_sort(all, {}, &TraceRecord::begin_ns);
  return all;
}

void Trace::write_json(std::ostream& out) const {
  const char* separator = "\n";
  const auto write = [&](const std::string& event) {
    out << separator << event;
    separator = ",\n";
  };
  const auto describe = [&](int process, int thread, const char* key, const char* value_key,
                            const std::string& value) {
    write(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":{}}}}})", key, process,
                      thread, value_key, value));
  };

  // Before the lanes are listed, so that each record's lane is among them.
  const std::vector<TraceRecord> tasks = records();
  out << R"({"displayTimeUnit":"ms","traceEvents":[)";
  std::map<std::string, int> processes;  // numbered in the order of their first lanes
  std::vector<int> process_of;
  for (const auto& lane : lanes()) {
    const auto [device, is_new] = processes.emplace(lane->device_, static_cast<int>(processes.size()));
    const int process = process_of.emplace_back(device->second);
    if (is_new) {
      describe(process, lane->index_, "process_name", "name", json_string(lane->device_));
      describe(process, lane->index_, "process_sort_index", "sort_index", std::to_string(process));
    }
    describe(process, lane->index_, "thread_name", "name", json_string(lane->name_));
    describe(process, lane->index_, "thread_sort_index", "sort_index", std::to_string(lane->index_));
  }
  for (const TraceRecord& task : tasks) {
    write(fmt::format(R"({{"ph":"X","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
                      json_string(task.name), process_of[task.lane], task.lane,
                      static_cast<double>(task.begin_ns) * 1e-3,
                      static_cast<double>(task.end_ns - task.begin_ns) * 1e-3));
  }
  out << "\n]}\n";
}

std::int64_t Trace::steady_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::vector<std::shared_ptr<TraceLane>> Trace::lanes() const {
  const std::lock_guard lock(mutex_);
  return lanes_;
}

}  // namespace lockstep
