// A TreeLayout with the lookups that reducers need.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep {

// Shared by all TreeReducers: where segments begin, and which rank owns which position.
class Arrangement {
 public:
  // The owner of a position that no rank has.
  static constexpr int kNobody = -1, kSeveral = -2;

  explicit Arrangement(TreeLayout layout) : layout_(std::move(layout)) {
    begins_.assign(1, 0);
    for (std::size_t segment : layout_.segments) begins_.push_back(begins_.back() + segment);
    for (std::size_t r = 0; r < layout_.positions.size(); ++r) {
      for (int position : layout_.positions[r]) {
        owners_.resize(std::max(owners_.size(), static_cast<std::size_t>(position) + 1), kNobody);
        owners_[static_cast<std::size_t>(position)] = static_cast<int>(r);
      }
    }
  }

  std::size_t elements() const { return begins_.back(); }
  DType dtype() const { return layout_.dtype; }
  std::size_t item() const { return item_size(layout_.dtype); }
  // The type of sums for the layout's type.
  void sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count) const {
    if (dtype() == DType::bf16) return rounded_tree_sum(leaves, out_dtype, out, count);
    tree_reduce(ReduceOp::sum, DType::f32, leaves, out, count);
  }
  std::size_t segments() const { return layout_.segments.size(); }
  std::size_t leaves() const { return owners_.size(); }
  const std::vector<int>& positions(int rank) const { return layout_.positions[static_cast<std::size_t>(rank)]; }

  // Calls visit(segment, begin, length) for the part of each segment in elements [begin, end).
  template <typename Visit>
  void for_each_segment(std::size_t begin, std::size_t end, const Visit& visit) const {
    auto segment = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin());
    for (segment = std::max<std::size_t>(segment, 1) - 1; segment < segments() && begins_[segment] < end; ++segment) {
      const std::size_t first = std::max(begin, begins_[segment]), last = std::min(end, begins_[segment + 1]);
      if (first < last) visit(segment, first, last - first);
    }
  }

  // The owner of all positions in [first, first + n).
  int owner(std::size_t first, std::size_t n) const {
    int owner = kNobody;
    for (std::size_t p = first; p < first + n; ++p) {
      if (owners_[p] == kNobody || owners_[p] == owner) continue;
      owner = owner == kNobody ? owners_[p] : kSeveral;
      if (owner == kSeveral) break;
    }
    return owner;
  }

 private:
  TreeLayout layout_;
  std::vector<std::size_t> begins_;
  std::vector<int> owners_;  // by position
};

}  // namespace lockstep
