// Who uses a resource on streams. A task of a lane with a stream is complete for the dependency graph when it has queued
// its work. The work is not over then, so its resources remember the ticket, and whoever comes next waits for it: on its
// own stream, or else in its own thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Of a launched task: a lane with a stream, and the stream's ticket behind the task's work.
struct Ticket {
  int lane = -1;
  std::uint64_t number = 0;  // 0: none
  bool operator==(const Ticket&) const = default;
};

struct DeviceWait {
  Ticket ticket;
  // What is waited for has written what the waiting one reads: its failure is the other's, too.
  bool data = false;
};

class DeviceUses {
 public:
  void read(Ticket by);
  // The writer has waited for all former users.
  void write(Ticket by);
  // The uses of a successor: everyone waits for whoever used the former resource.
  DeviceUses of_successor() const;
  bool read_or_written(Ticket by) const;
  bool written(Ticket by) const { return written_ == by; }
  Ticket last_written() const { return written_; }

  // Adds what has to be over before who reads or writes the resource may begin.
  void add_waits(bool reads, bool writes, std::vector<DeviceWait>& waits) const;

 private:
  Ticket written_;
  // At most one ticket of a lane, the latest, in each list.
  std::vector<Ticket> former_;  // of those whose memory it was
  std::vector<Ticket> read_;    // since it was written
};

}  // namespace lockstep
