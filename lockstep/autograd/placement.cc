#include "lockstep/autograd/placement.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {

Placement::Placement(std::vector<std::int64_t> rows, std::vector<Slot> slots, std::shared_ptr<ShardExchange> exchange,
                     std::shared_ptr<const Placement> all_ranks)
    : rows_(std::move(rows)), slots_(std::move(slots)), exchange_(std::move(exchange)),
      all_ranks_(std::move(all_ranks)), samples_(std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0})) {
  check(!slots_.empty(), "placement: no shard in this process, expected at least one");
  std::vector<std::size_t> next;  // turn of each device
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    check(slot.shard >= 0 && slot.shard < std::ssize(rows_), "placement: shard {} of {}", slot.shard, rows_.size());
    const auto device = static_cast<std::size_t>(std::ranges::find(devices_, slot.device) - devices_.begin());
    if (device == devices_.size()) {
      devices_.push_back(slot.device);
      next.push_back(0);
    }
    const std::size_t turn = next[device]++;
    if (turn == turns_.size()) turns_.emplace_back();
    turns_[turn].push_back(s);
  }
}

const Slot* Placement::slot_of(int shard) const {
  const auto slot = std::ranges::find(slots_, shard, &Slot::shard);
  return slot == slots_.end() ? nullptr : &*slot;
}

double Placement::share(int shard) const {
  return samples_ == 0 ? 0 : static_cast<double>(rows_of(shard)) / static_cast<double>(samples_);
}

int Placement::lowest_shard() const {
  const auto first = std::ranges::find_if(rows_, [](std::int64_t n) { return n > 0; });
  return first == rows_.end() ? 0 : static_cast<int>(first - rows_.begin());
}

bool same_placement(const std::shared_ptr<const Placement>& a, const std::shared_ptr<const Placement>& b) {
  if (a == b) return true;
  if (!a || !b || a->rows() != b->rows() || a->slots() != b->slots()) return false;
  return a->exchange() == b->exchange() || (a->exchange() && b->exchange() && a->exchange()->joins_as(*b->exchange()));
}

}  // namespace lockstep
