#include "lockstep/engine/launched_tasks.h"

#include <algorithm>
#include <thread>

namespace lockstep {

LaunchedTasks::~LaunchedTasks() {
  for (const auto& lane : lanes_) {
    if (lane && !lane->launches.empty()) lane->stream->synchronize(lane->launches.back().ticket);
  }
}

void LaunchedTasks::add_lane(int index, std::shared_ptr<Stream> stream, std::string name) {
  auto lane = std::make_unique<Lane>();
  lane->stream = std::move(stream);
  lane->name = std::move(name);
  const std::lock_guard lock(mutex_);
  lanes_.resize(std::max<std::size_t>(lanes_.size(), index + 1));
  lanes_[index] = std::move(lane);
}

void LaunchedTasks::add(int index, Launch launch) {
  const std::lock_guard lock(mutex_);
  Lane& lane = *find(index);
  if (std::exchange(lane.loses_next, false)) lane.losses.back().last = launch.ticket;
  lane.launches.push_back(std::move(launch));
  // Ask the device after this many launches, so that launches do not pile up and a failure is found near its task.
  constexpr int kLook = 16;
  if (lane.launches.size() % kLook == 0) settle_all(index);
}

Stream& LaunchedTasks::stream(int lane) const {
  const std::lock_guard lock(mutex_);
  return *find(lane)->stream;
}

bool LaunchedTasks::finished(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return settle(ticket);
}

std::int64_t LaunchedTasks::unfinished_task(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  const Lane& lane = *find(ticket.lane);
  if (ticket.number <= lane.settled) return -1;
  return std::ranges::lower_bound(lane.launches, ticket.number, {}, &Launch::ticket)->order;
}

FailurePtr LaunchedTasks::failure(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return loss(*find(ticket.lane), ticket.number);
}

bool LaunchedTasks::wait(Ticket ticket, std::optional<std::chrono::nanoseconds> timeout) {
  constexpr auto kLook = std::chrono::microseconds(50);
  const auto begin = std::chrono::steady_clock::now();
  while (!finished(ticket)) {
    if (!timeout) {
      stream(ticket.lane).synchronize(ticket.number);
    } else {
      // Devices have no wait with a timeout.
      if (std::chrono::steady_clock::now() - begin >= *timeout) return false;
      std::this_thread::sleep_for(kLook);
    }
  }
  return true;
}

void LaunchedTasks::wait_for_room(int index, std::int64_t limit) {
  Ticket ticket{.lane = index};
  {
    const std::lock_guard lock(mutex_);
    const auto& launches = find(index)->launches;
    if (static_cast<std::int64_t>(launches.size()) < limit) return;
    // Wait for an eighth of them rather than only the first, so that the thread does not wake for each one.
    ticket.number = launches[limit / 8].ticket;
  }
  wait(ticket);
}

std::chrono::nanoseconds LaunchedTasks::take_time(int index) {
  const std::lock_guard lock(mutex_);
  Lane* lane = find(index);
  return std::chrono::nanoseconds(lane ? std::exchange(lane->time_ns, 0) : 0);
}

std::vector<std::vector<std::string>> LaunchedTasks::unfinished() {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<std::string>> names(lanes_.size());
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i]) continue;
    settle_all(static_cast<int>(i));
    for (const Launch& launch : lanes_[i]->launches) names[i].push_back(launch.task);
  }
  return names;
}

std::int64_t LaunchedTasks::count(int lane) {
  const std::lock_guard lock(mutex_);
  return settle_all(lane);
}

std::vector<std::int64_t> LaunchedTasks::counts(std::span<const LaneId> lanes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> all;
  if (lanes_.empty()) return all;
  for (const LaneId lane : lanes) all.push_back(settle_all(lane.index));
  return all;
}

LaunchedTasks::Lane* LaunchedTasks::find(int lane) const {
  return lane >= 0 && lane < static_cast<int>(lanes_.size()) ? lanes_[lane].get() : nullptr;
}

// A task is finished only after the tasks whose failures it would inherit, so that these failures are known first. They
// were pushed before it. The lanes that wait for one another here all differ, so the number of lanes bounds the
// recursion.
bool LaunchedTasks::settle(Ticket ticket) {
  Lane& lane = *find(ticket.lane);
  while (lane.settled < ticket.number) {
    Launch& first = lane.launches.front();
    if (lane.reached < first.ticket) ask(lane);
    if (lane.reached < first.ticket) return false;
    if (!loss(lane, first.ticket)) {
      bool settled = true;
      FailurePtr failure = lost_reads(first, settled);
      if (!settled) return false;
      // The ticket of a task's part comes before the task's own ticket, so `<=` finds errors of both.
      const auto error = lane.data_errors.begin();
      const bool own = error != lane.data_errors.end() && error->first <= first.ticket;
      if (!failure && own) failure = blame(first, lane, error->second);
      if (failure) lane.losses.push_back({first.ticket, first.ticket, failure});
    }
    lane.data_errors.erase(lane.data_errors.begin(), lane.data_errors.upper_bound(first.ticket));
    if (first.begin > 0) take_times(lane, first);
    lane.settled = first.ticket;
    lane.launches.pop_front();
  }
  return true;
}

// Returns the first failure of what the launch reads. Sets `settled` to false if some of that work is not over yet.
FailurePtr LaunchedTasks::lost_reads(const Launch& launch, bool& settled) {
  std::vector<FailurePtr> causes;
  for (const Ticket read : launch.reads) {
    settled = settle(read);
    if (!settled) return nullptr;
    FailurePtr cause = loss(*find(read.lane), read.number);
    if (cause && std::ranges::find(causes, cause) == causes.end()) causes.push_back(std::move(cause));
  }
  if (causes.empty()) return nullptr;
  const auto order = [](const FailurePtr& f) { return f->order; };
  const FailurePtr first = *std::ranges::min_element(causes, {}, order);
  for (const FailurePtr& other : causes) {
    if (other != first && !launch.group) join_(first, other);
  }
  return first;
}

// Returns the number of unfinished launches.
std::int64_t LaunchedTasks::settle_all(int index) {
  Lane* lane = find(index);
  if (!lane) return 0;
  if (!lane->launches.empty()) settle({index, lane->launches.back().ticket});
  return static_cast<std::int64_t>(lane->launches.size());
}

// Call it only while work is unfinished.
void LaunchedTasks::ask(Lane& lane) {
  while (true) {
    try {
      lane.reached = std::max(lane.reached, lane.stream->finished());
      return;
    } catch (const StreamError& error) {
      if (error.lost() != StreamError::Lost::ticket) return lose(lane, error.ticket(), std::current_exception());
      lane.data_errors.emplace(error.ticket(), std::current_exception());
    } catch (...) {
      return lose(lane, 0, std::current_exception());
    }
  }
}

FailurePtr LaunchedTasks::blame(const Launch& launch, const Lane& lane, std::exception_ptr cause) const {
  return blame_(launch, lane.name, std::move(cause),
                [this](Ticket ticket) { return loss(*find(ticket.lane), ticket.number); });
}

// Marks work in flight from `first` on as lost. The work ends before it counts as lost, because its memory may be
// reused then.
void LaunchedTasks::lose(Lane& lane, std::uint64_t first, std::exception_ptr cause) {
  const std::uint64_t last = lane.launches.back().ticket;
  lane.stream->synchronize(last);
  lane.reached = last;
  lane.loses_next |= first > last;
  auto culprit = std::ranges::lower_bound(lane.launches, first, {}, &Launch::ticket);
  if (culprit == lane.launches.end()) --culprit;
  lane.losses.push_back({culprit->ticket, last, blame(*culprit, lane, std::move(cause))});
  take_failures(lane, first, last);
}

// Takes the failures of tasks after `told` and up to `last`. These tasks are lost already; later tasks must not be
// blamed for their failures.
void LaunchedTasks::take_failures(Lane& lane, std::uint64_t told, std::uint64_t last) {
  while (true) {
    try {
      lane.stream->finished();
      return;
    } catch (const StreamError& error) {
      if (error.lost() == StreamError::Lost::ticket) {
        lane.data_errors.emplace(error.ticket(), std::current_exception());
        continue;
      }
      lane.loses_next |= error.ticket() > last;
      // A device that is lost for good reports the same failure each time.
      if (error.ticket() <= told || error.ticket() > last) return;
      told = error.ticket();
    } catch (...) {
      return;
    }
  }
}

FailurePtr LaunchedTasks::loss(const Lane& lane, std::uint64_t ticket) {
  for (const Loss& loss : lane.losses) {
    if (loss.first <= ticket && ticket <= loss.last) return loss.failure;
  }
  return nullptr;
}

void LaunchedTasks::take_times(Lane& lane, Launch& launch) noexcept try {
  for (const auto& [lane_trace, part] : launch.parts) {
    if (!lane_trace) continue;
    const TimeSpan times = lane.stream->times_of(part.begin, part.end);
    lane_trace->add(part.name, {.begin_ns = times.begin_ns,
                                .end_ns = times.end_ns,
                                .order = launch.record.order,
                                .queued = launch.record.queued,
                                .device_bytes = launch.record.device_bytes});
  }
  // Always ask for the times: the stream keeps them until then.
  const TimeSpan times = lane.stream->times_of(launch.begin, launch.ticket);
  launch.record.begin_ns = times.begin_ns;
  launch.record.end_ns = times.end_ns;
  if (launch.measured) lane.time_ns += times.end_ns - times.begin_ns;
  if (!launch.trace || !launch.parts.empty()) return;
  launch.trace->add(launch.task, std::move(launch.record));
} catch (...) {
  // A failed device has no times.
}

}  // namespace lockstep
