#include "lockstep/engine/device_uses.h"

#include <algorithm>

namespace lockstep {
namespace {

void add_latest(std::vector<Ticket>& tickets, Ticket ticket) {
  const auto same = std::ranges::find(tickets, ticket.lane, &Ticket::lane);
  if (same == tickets.end()) {
    tickets.push_back(ticket);
  } else {
    same->number = std::max(same->number, ticket.number);
  }
}

}  // namespace

void DeviceUses::read(Ticket by) { add_latest(read_, by); }

void DeviceUses::write(Ticket by) {
  written_ = by;
  former_.clear();
  read_.clear();
}

DeviceUses DeviceUses::of_successor() const {
  DeviceUses successor;
  successor.former_ = former_;
  for (const Ticket ticket : read_) add_latest(successor.former_, ticket);
  if (written_.number > 0) add_latest(successor.former_, written_);
  return successor;
}

bool DeviceUses::read_or_written(Ticket by) const {
  return written_ == by || std::ranges::find(read_, by) != read_.end();
}

void DeviceUses::add_waits(bool reads, bool writes, std::vector<DeviceWait>& waits) const {
  if (written_.number > 0) waits.push_back({written_, reads});
  for (const Ticket ticket : former_) waits.push_back({ticket, false});
  if (!writes) return;
  for (const Ticket ticket : read_) waits.push_back({ticket, false});
}

}  // namespace lockstep
