// Internal: tasks that have queued their work on streams: which have finished, and which have failed. DeviceUses names
// them by ticket and says who waits for which; this says which tickets are over.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/device/stream.h"
#include "lockstep/engine/device_uses.h"
#include "lockstep/engine/failure.h"
#include "lockstep/engine/task.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

// Has its own lock, because asking a device takes time. Lock order: this lock, then the graph's; never the reverse.
class LaunchedTasks {
 public:
  struct Launch;
  // Returns why the work of an earlier ticket is lost; null if no loss is known.
  using LossOf = std::function<FailurePtr(Ticket)>;
  // Turns a stream's exception into a failure and remembers it for wait_all. Called with the lock held, before any
  // thread learns that the task is over.
  using Blame = std::function<FailurePtr(const Launch& launch, const std::string& lane, std::exception_ptr cause,
                                         const LossOf& loss_of)>;
  // Called with the lock held when a task has read data that both failures lost: a report of `first` covers `other`.
  using Join = std::function<void(const FailurePtr& first, const FailurePtr& other)>;
  LaunchedTasks(Blame blame, Join join) : blame_(std::move(blame)), join_(std::move(join)) {}
  // Waits for all streams.
  ~LaunchedTasks();

  struct Part {
    std::shared_ptr<TraceLane> trace;
    TaskPart part;
  };
  struct Launch {
    std::uint64_t ticket = 0;
    std::string task = {};
    std::int64_t order = 0;
    std::shared_ptr<FailureGroup> group = {};
    // Tickets whose failures this task inherits, because it reads what they wrote.
    std::vector<Ticket> reads = {};
    // Whether its time counts in take_time().
    bool measured = false;
    // Set while a timeline is recorded; `record` then lacks only the times. `begin` is the ticket of the task's
    // beginning if the task is timed, otherwise 0.
    std::shared_ptr<TraceLane> trace = {};
    std::uint64_t begin = 0;
    TraceRecord record = {};
    std::vector<Part> parts = {};
  };

  void add_lane(int lane, std::shared_ptr<Stream> stream, std::string name);
  // Call it in the order of tickets, before any other thread knows the ticket.
  void add(int lane, Launch launch);

  Stream& stream(int lane) const;
  // Returns whether the work is over. Asks the devices.
  bool finished(Ticket ticket);
  // Returns the task's place in the order of pushing; -1 if the task is known to have finished. Does not ask the
  // devices.
  std::int64_t unfinished_task(Ticket ticket) const;
  // Call it for finished work. Returns why the work is lost; null if it succeeded.
  FailurePtr failure(Ticket ticket) const;
  // Waits until the work is over. Returns false on timeout.
  bool wait(Ticket ticket, std::optional<std::chrono::nanoseconds> timeout = {});
  // Waits until fewer than `limit` of the lane's launched tasks are unfinished.
  void wait_for_room(int lane, std::int64_t limit);

  // Returns the device's time for the lane's finished measured tasks since the last call.
  std::chrono::nanoseconds take_time(int lane);

  // Names of unfinished tasks by lane, in order.
  std::vector<std::vector<std::string>> unfinished();
  // Number of unfinished tasks of one lane; 0 for a lane without a stream.
  std::int64_t count(int lane);
  // The same for several lanes; empty if no lane has a stream.
  std::vector<std::int64_t> counts(std::span<const LaneId> lanes);

 private:
  // Tickets `first` to `last` are lost.
  struct Loss {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    FailurePtr failure;
  };
  struct Lane {
    std::shared_ptr<Stream> stream;
    std::string name;
    // Launches that are not known to be over.
    std::deque<Launch> launches;
    // Ticket of the last task known to be over, and the last ticket that the stream reported as finished.
    std::uint64_t settled = 0;
    std::uint64_t reached = 0;
    std::vector<Loss> losses;
    // Errors of single tickets, until the tickets are settled: if a task read lost data, its own error is dropped,
    // because the task inherits the earlier failure.
    std::map<std::uint64_t, std::exception_ptr> data_errors;
    std::int64_t time_ns = 0;  // of measured tasks
    // A failure arrived while a task was queueing its work.
    bool loses_next = false;
  };

  // Call these with the lock.
  Lane* find(int lane) const;
  bool settle(Ticket ticket);
  std::int64_t settle_all(int lane);
  void ask(Lane& lane);
  void lose(Lane& lane, std::uint64_t first, std::exception_ptr cause);
  FailurePtr lost_reads(const Launch& launch, bool& settled);
  FailurePtr blame(const Launch& launch, const Lane& lane, std::exception_ptr cause) const;
  static void take_failures(Lane& lane, std::uint64_t told, std::uint64_t last);
  static FailurePtr loss(const Lane& lane, std::uint64_t ticket);
  static void take_times(Lane& lane, Launch& launch) noexcept;

  const Blame blame_;
  const Join join_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by index; null for those without a stream
};

}  // namespace lockstep
