// Internal: uses of a resource by streams. A task on a lane with a stream is complete for the dependency graph when it
// has queued its work. The work itself is not finished then, so the resources remember its ticket, and the next user
// waits for it: on its own stream if it has one, otherwise in its own thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Identifies a launched task: its lane, and the ticket that follows the task's work on the stream.
struct Ticket {
  int lane = -1;
  std::uint64_t number = 0;  // 0: none
  bool operator==(const Ticket&) const = default;
};

struct DeviceWait {
  Ticket ticket;
  // The waiting task reads what the awaited task wrote, so it inherits that task's failure.
  bool data = false;
};

class DeviceUses {
 public:
  void read(Ticket by);
  // Records a write. The writer has waited for all former users.
  void write(Ticket by);
  // Returns the first uses of a successor, whose users wait for all users of this resource.
  DeviceUses of_successor() const;
  bool read_or_written(Ticket by) const;
  bool written(Ticket by) const { return written_ == by; }
  Ticket last_written() const { return written_; }

  // Adds the work that must finish before the resource may be read or written.
  void add_waits(bool reads, bool writes, std::vector<DeviceWait>& waits) const;

 private:
  Ticket written_;
  // Each list has at most one ticket per lane, the latest.
  std::vector<Ticket> former_;  // users of the memory's former resource
  std::vector<Ticket> read_;    // since it was written
};

}  // namespace lockstep
