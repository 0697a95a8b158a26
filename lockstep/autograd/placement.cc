#include "lockstep/autograd/placement.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {

Placement::Placement(std::vector<std::int64_t> rows, std::vector<Slot> slots, std::shared_ptr<ShardExchange> exchange)
    : rows_(std::move(rows)), slots_(std::move(slots)), exchange_(std::move(exchange)),
      samples_(std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0})) {
  check(!slots_.empty(), "placement: no shard in this process, expected at least one");
  for (const Slot& slot : slots_) {
    check(slot.shard >= 0 && slot.shard < std::ssize(rows_), "placement: shard {} of {}", slot.shard, rows_.size());
    if (std::ranges::find(devices_, slot.device) == devices_.end()) devices_.push_back(slot.device);
  }
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
