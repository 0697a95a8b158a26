// Internal: the TreeReducers of all transports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// A valid TreeLayout with the lookups that reducers need: where segments begin, and which rank owns which position.
class IndexedLayout {
 public:
  // owner() of positions that no rank owns, and of positions that several ranks own.
  static constexpr int kNobody = -1, kSeveral = -2;

  // Throws if the layout is invalid for this number of ranks.
  IndexedLayout(TreeLayout layout, int ranks);

  std::size_t elements() const { return begins_.back(); }
  DType dtype() const { return layout_.dtype; }
  std::size_t item() const { return item_size(layout_.dtype); }
  std::size_t segments() const { return layout_.segments.size(); }
  std::size_t leaves() const { return owners_.size(); }
  const std::vector<int>& positions(int rank) const { return layout_.positions[static_cast<std::size_t>(rank)]; }
  // The rank that owns the positions in [first, first + n). Positions without an owner do not count.
  int owner(std::size_t first, std::size_t n) const;

  // Sums arrays of the layout's type: tree_reduce() for f32, rounded_tree_sum() for bf16.
  void sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count) const;

  // Calls visit(segment, begin, length) for the part of each segment in elements [begin, end).
  template <typename Visit>
  void for_each_segment(std::size_t begin, std::size_t end, const Visit& visit) const {
    auto segment = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin());
    for (segment = std::max<std::size_t>(segment, 1) - 1; segment < segments() && begins_[segment] < end; ++segment) {
      const std::size_t first = std::max(begin, begins_[segment]), last = std::min(end, begins_[segment + 1]);
      if (first < last) visit(segment, first, last - first);
    }
  }

 private:
  TreeLayout layout_;
  std::vector<std::size_t> begins_;
  std::vector<int> owners_;  // by position
};

// Equal on two ranks if their segments and positions are.
std::uint64_t hash_of(const TreeLayout& layout);

// Runs a reducer's collective in order with the group's other operations, with the options' label and timeout and with
// the group's errors.
using CollectiveRunner =
    std::function<void(const CollectiveOptions& options,
                       const std::function<void(const CollectiveHeader& header, const TimeLimit& limit)>& collective)>;

// A collective of the transport's ranks. Uses memory that all ranks share if the transport has it. Otherwise the ranks
// send pieces to each other.
std::unique_ptr<TreeReducer> make_tree_reducer(Transport& transport, int channel, IndexedLayout layout,
                                               CollectiveRunner run, const TimeLimit& limit);

}  // namespace lockstep
