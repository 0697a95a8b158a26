#include "lockstep/comm/tree_reducer.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/tree.h"
#include "lockstep/comm/exchanges.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep {
namespace {

// Contributions, the result, and presence flags lie in memory that all ranks share. Each rank sums its part of the
// elements in place, without copies.
class SharedReducer final : public TreeReducer {
 public:
  SharedReducer(Transport& transport, int channel, IndexedLayout layout, CollectiveRunner run,
                std::shared_ptr<std::byte> memory)
      : transport_(transport), channel_(channel), layout_(std::move(layout)), run_(std::move(run)),
        memory_(std::move(memory)) {
    present_.resize(layout_.segments());
  }

  static std::size_t bytes(const IndexedLayout& layout) {
    const std::size_t bytes =
        layout.leaves() * array_bytes(layout) + result_bytes(layout) + layout.leaves() * layout.segments();
    return std::max<std::size_t>(bytes, 1);  // an allocation of 0 bytes is impossible
  }

  CommBuffer contribution(std::size_t k) override { return {array(position(k)), layout_.elements(), layout_.dtype()}; }
  void set_present(std::size_t k, std::size_t segment, bool present) override { flags(position(k))[segment] = present; }
  std::span<const float> result() const override { return {sums(), layout_.elements()}; }
  bool result_present(std::size_t segment) const override { return present_[segment]; }

  void reduce(const CollectiveOptions& options) override {
    run_(options, [this](const CollectiveHeader& header, const TimeLimit& limit) { sum(header, limit); });
  }

 private:
  void sum(const CollectiveHeader& header, const TimeLimit& limit) {
    Exchanges e(transport_, channel_, header, limit);
    e.exchange();  // all contributions are ready
    for (std::size_t s = 0; s < layout_.segments(); ++s) {
      present_[s] = false;
      for (std::size_t p = 0; p < layout_.leaves() && !present_[s]; ++p) present_[s] = flags(p)[s] != 0;
    }
    // Parts begin at multiples of a cache line, so that no two ranks write to the same line.
    const auto bound = [&](std::size_t r) {
      return r == e.size ? layout_.elements() : layout_.elements() * r / e.size / 16 * 16;
    };
    std::vector<const void*> leaves(layout_.leaves());
    layout_.for_each_segment(bound(e.rank), bound(e.rank + 1), [&](std::size_t s, std::size_t begin, std::size_t n) {
      if (!present_[s]) {
        std::fill_n(sums() + begin, n, 0.0f);
        return;
      }
      for (std::size_t p = 0; p < leaves.size(); ++p) {
        leaves[p] = flags(p)[s] != 0 ? array(p) + begin * layout_.item() : nullptr;
      }
      layout_.sum(leaves, DType::f32, sums() + begin, n);
    });
    e.exchange();  // the whole result is ready, and no rank reads contributions any more
  }

  static std::size_t whole_pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  static std::size_t array_bytes(const IndexedLayout& layout) { return whole_pages(layout.elements() * layout.item()); }
  static std::size_t result_bytes(const IndexedLayout& layout) {
    return whole_pages(layout.elements() * sizeof(float));
  }
  std::size_t position(std::size_t k) const {
    return static_cast<std::size_t>(layout_.positions(transport_.rank())[k]);
  }
  std::byte* array(std::size_t index) const { return memory_.get() + index * array_bytes(layout_); }
  float* sums() const { return reinterpret_cast<float*>(array(layout_.leaves())); }
  // Returns one byte for each segment. The flags of positions without an owner stay zero.
  std::uint8_t* flags(std::size_t p) const {
    auto* flags = reinterpret_cast<std::uint8_t*>(array(layout_.leaves()) + result_bytes(layout_));
    return flags + p * layout_.segments();
  }

  Transport& transport_;
  int channel_;
  IndexedLayout layout_;
  CollectiveRunner run_;
  std::shared_ptr<std::byte> memory_;
  std::vector<bool> present_;
};

// Each rank sums the largest subtrees that are entirely its own. It sends to each other rank that rank's part of these
// sums, adds up its own part of all subtrees' sums, and sends the total to all ranks.
class SendingReducer final : public TreeReducer {
 public:
  SendingReducer(Transport& transport, int channel, IndexedLayout layout, CollectiveRunner run)
      : transport_(transport), channel_(channel), layout_(std::move(layout)), run_(std::move(run)),
        subtrees_(static_cast<std::size_t>(transport.size())) {
    find_subtrees(0, layout_.leaves());
    const std::size_t own = layout_.positions(transport.rank()).size();
    arrays_.assign(own, std::vector<std::byte>(layout_.elements() * layout_.item()));
    flags_.assign(own, std::vector<std::uint8_t>(layout_.segments()));
    sums_.resize(subtrees_[static_cast<std::size_t>(transport.rank())].size());
    result_.resize(layout_.elements());
    present_.resize(layout_.segments());
  }

  CommBuffer contribution(std::size_t k) override { return {arrays_[k].data(), layout_.elements(), layout_.dtype()}; }
  void set_present(std::size_t k, std::size_t segment, bool present) override { flags_[k][segment] = present; }
  std::span<const float> result() const override { return result_; }
  bool result_present(std::size_t segment) const override { return present_[segment]; }

  void reduce(const CollectiveOptions& options) override {
    run_(options, [this](const CollectiveHeader& header, const TimeLimit& limit) { sum(header, limit); });
  }

 private:
  void sum(const CollectiveHeader& header, const TimeLimit& limit) {
    const auto own_presence = sum_own_subtrees();
    Exchanges e(transport_, channel_, header, limit);
    const auto presence = exchange_presence(e, own_presence);
    const std::size_t item = layout_.item();
    std::fill(e.from.begin(), e.from.end(), MutableBlock{});
    e.in_steps(layout_.elements(), item, [&](std::size_t begin, std::size_t length) {
      const auto bound = [&](std::size_t r) { return begin + length * r / e.size; };
      const std::size_t own = bound(e.rank), own_length = bound(e.rank + 1) - own;
      const std::vector<const std::byte*> parts = exchange_parts(e, bound);
      std::byte* totals = totals_of(begin, length);
      const auto at_total = [&](std::size_t element) { return totals + (element - begin) * item; };
      layout_.for_each_segment(own, own + own_length, [&](std::size_t s, std::size_t at, std::size_t n) {
        if (!present_[s]) {
          std::memset(at_total(at), 0, n * item);
          return;
        }
        // The sum of a subtree takes the place of its first leaf. The other leaves are missing, so the sum passes
        // through the subtree unchanged.
        std::vector<const void*> leaves(layout_.leaves(), nullptr);
        for_each_subtree([&](std::size_t index, std::size_t, std::size_t, const Subtree& subtree) {
          if (presence[index][s] != 0) leaves[subtree.first] = parts[index] + (at - own) * item;
        });
        layout_.sum(leaves, layout_.dtype(), at_total(at), n);
      });
      e.to_all(at_total(own), own_length * item);
      for (std::size_t r = 0; r < e.size; ++r) {
        e.from[r] = {at_total(bound(r)), (bound(r + 1) - bound(r)) * item};
      }
      e.exchange();
      if (layout_.dtype() == DType::bf16) {
        const auto* rounded = reinterpret_cast<const BFloat16*>(totals);
        std::transform(rounded, rounded + length, result_.data() + begin,
                       [](BFloat16 x) { return static_cast<float>(x); });
      }
    });
  }

  // A subtree whose leaves all belong to one rank.
  struct Subtree {
    std::size_t first, leaves;
  };

  // Returns where the sums of elements [begin, begin + length) are assembled, in the layout's type.
  std::byte* totals_of(std::size_t begin, std::size_t length) {
    if (layout_.dtype() == DType::f32) return reinterpret_cast<std::byte*>(result_.data() + begin);
    totals_.resize(std::max(totals_.size(), length * layout_.item()));
    return totals_.data();
  }

  void find_subtrees(std::size_t first, std::size_t n) {
    const int owner = n == 0 ? IndexedLayout::kNobody : layout_.owner(first, n);
    if (owner == IndexedLayout::kNobody) return;
    if (owner != IndexedLayout::kSeveral) {
      subtrees_[static_cast<std::size_t>(owner)].push_back({first, n});
      return;
    }
    find_subtrees(first, tree_split(n));
    find_subtrees(first + tree_split(n), n - tree_split(n));
  }

  // Calls visit(index among all subtrees, rank, index among that rank's subtrees, subtree).
  template <typename Visit>
  void for_each_subtree(const Visit& visit) const {
    std::size_t index = 0;
    for (std::size_t r = 0; r < subtrees_.size(); ++r) {
      for (std::size_t j = 0; j < subtrees_[r].size(); ++j) visit(index++, r, j, subtrees_[r][j]);
    }
  }

  // Fills sums_. Returns one byte for each segment of each own subtree: whether the segment is present.
  std::vector<std::uint8_t> sum_own_subtrees() {
    const auto& positions = layout_.positions(transport_.rank());
    const auto& subtrees = subtrees_[static_cast<std::size_t>(transport_.rank())];
    std::vector<std::uint8_t> presence(subtrees.size() * layout_.segments());
    for (std::size_t j = 0; j < subtrees.size(); ++j) {
      const auto begin = std::lower_bound(positions.begin(), positions.end(), static_cast<int>(subtrees[j].first));
      const auto end =
          std::lower_bound(begin, positions.end(), static_cast<int>(subtrees[j].first + subtrees[j].leaves));
      if (end - begin > 1) own_sums_resize(j);
      for (auto p = begin; p != end; ++p) {
        const auto k = static_cast<std::size_t>(p - positions.begin());
        for (std::size_t s = 0; s < layout_.segments(); ++s) presence[j * layout_.segments() + s] |= flags_[k][s];
      }
      if (end - begin == 1) {
        sums_[j] = arrays_[static_cast<std::size_t>(begin - positions.begin())].data();
        continue;
      }
      layout_.for_each_segment(0, layout_.elements(), [&](std::size_t s, std::size_t at, std::size_t n) {
        if (presence[j * layout_.segments() + s] == 0) return;
        std::vector<const void*> leaves(subtrees[j].leaves, nullptr);
        for (auto p = begin; p != end; ++p) {
          const auto k = static_cast<std::size_t>(p - positions.begin());
          if (flags_[k][s] == 0) continue;
          leaves[static_cast<std::size_t>(*p) - subtrees[j].first] = arrays_[k].data() + at * layout_.item();
        }
        layout_.sum(leaves, layout_.dtype(), own_sums_[j].data() + at * layout_.item(), n);
      });
      sums_[j] = own_sums_[j].data();
    }
    return presence;
  }

  void own_sums_resize(std::size_t j) {
    own_sums_.resize(std::max(own_sums_.size(), j + 1));
    own_sums_[j].resize(layout_.elements() * layout_.item());
  }

  // Sends the presence of own subtrees to all ranks, and returns the presence of all subtrees. Fills present_.
  std::vector<std::vector<std::uint8_t>> exchange_presence(Exchanges& e, const std::vector<std::uint8_t>& own) {
    e.to_all(reinterpret_cast<const std::byte*>(own.data()), own.size());
    for (std::size_t r = 0; r < e.size; ++r) e.from[r] = {nullptr, subtrees_[r].size() * layout_.segments()};
    e.exchange();
    std::vector<std::vector<std::uint8_t>> presence;
    std::fill(present_.begin(), present_.end(), false);
    for_each_subtree([&](std::size_t, std::size_t r, std::size_t j, const Subtree&) {
      const auto* all = r == e.rank ? own.data() : reinterpret_cast<const std::uint8_t*>(e.from[r].data);
      const auto* flags = all + j * layout_.segments();
      presence.emplace_back(flags, flags + layout_.segments());
      for (std::size_t s = 0; s < layout_.segments(); ++s) present_[s] = present_[s] || flags[s] != 0;
    });
    return presence;
  }

  // Receives this rank's part of every subtree's sum.
  template <typename Bound>
  std::vector<const std::byte*> exchange_parts(Exchanges& e, const Bound& bound) {
    const std::size_t item = layout_.item(), own = bound(e.rank), length = (bound(e.rank + 1) - own) * item;
    std::vector<const std::byte*> parts;
    for_each_subtree([&](std::size_t index, std::size_t r, std::size_t j, const Subtree&) {
      if (r == e.rank) {
        parts.push_back(sums_[j] + own * item);
        return;
      }
      received_.resize(std::max(received_.size(), index + 1));
      received_[index].resize(std::max(received_[index].size(), length));
      parts.push_back(received_[index].data());
    });
    // Handles the k-th subtrees of all ranks at once. Usually each rank has one.
    std::size_t rounds = 0;
    for (const auto& subtrees : subtrees_) rounds = std::max(rounds, subtrees.size());
    for (std::size_t k = 0; k < rounds; ++k) {
      std::fill(e.from.begin(), e.from.end(), MutableBlock{});
      for_each_subtree([&](std::size_t index, std::size_t r, std::size_t j, const Subtree&) {
        if (j != k) return;
        if (r != e.rank) {
          e.from[r] = {received_[index].data(), length};
          return;
        }
        for (std::size_t other = 0; other < e.size; ++other) {
          e.to[other] = {sums_[k] + bound(other) * item, (bound(other + 1) - bound(other)) * item};
        }
      });
      e.exchange();
    }
    return parts;
  }

  Transport& transport_;
  int channel_;
  IndexedLayout layout_;
  CollectiveRunner run_;
  std::vector<std::vector<Subtree>> subtrees_;    // subtrees of each rank
  std::vector<std::vector<std::byte>> arrays_;    // the array of each own position
  std::vector<std::vector<std::uint8_t>> flags_;  // presence flags of each own position, one for each segment
  std::vector<std::vector<std::byte>> own_sums_;  // sums of own subtrees with several positions
  std::vector<const std::byte*> sums_;            // sum of each own subtree: in own_sums_, or the contribution itself
  std::vector<std::vector<std::byte>> received_;  // this rank's part of other ranks' subtrees
  std::vector<std::byte> totals_;
  std::vector<float> result_;
  std::vector<bool> present_;
};

void check_layout(const TreeLayout& layout, int ranks) {
  check(layout.positions.size() == static_cast<std::size_t>(ranks),
        "tree reducer: positions of {} ranks, expected those of {}", layout.positions.size(), ranks);
  std::vector<int> all;
  for (const auto& positions : layout.positions) {
    check(std::is_sorted(positions.begin(), positions.end()),
          "tree reducer: a rank's positions are unsorted, expected them ascending");
    all.insert(all.end(), positions.begin(), positions.end());
  }
  std::sort(all.begin(), all.end());
  check(!all.empty(), "tree reducer: no rank has a position");
  check(layout.dtype == DType::f32 || layout.dtype == DType::bf16, "tree reducer: {}, expected f32 or bf16",
        name(layout.dtype));
  check(all.front() >= 0, "tree reducer: position {}, expected at least 0", all.front());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  if (twice != all.end()) fail("tree reducer: position {} belongs to two ranks, or twice to one", *twice);
}

}  // namespace

IndexedLayout::IndexedLayout(TreeLayout layout, int ranks) : layout_(std::move(layout)) {
  check_layout(layout_, ranks);
  begins_.assign(1, 0);
  for (std::size_t segment : layout_.segments) begins_.push_back(begins_.back() + segment);
  for (std::size_t r = 0; r < layout_.positions.size(); ++r) {
    for (int position : layout_.positions[r]) {
      owners_.resize(std::max(owners_.size(), static_cast<std::size_t>(position) + 1), kNobody);
      owners_[static_cast<std::size_t>(position)] = static_cast<int>(r);
    }
  }
}

int IndexedLayout::owner(std::size_t first, std::size_t n) const {
  int owner = kNobody;
  for (std::size_t p = first; p < first + n; ++p) {
    if (owners_[p] == kNobody || owners_[p] == owner) continue;
    if (owner != kNobody) return kSeveral;
    owner = owners_[p];
  }
  return owner;
}

void IndexedLayout::sum(std::span<const void* const> leaves, DType out_dtype, void* out, std::size_t count) const {
  if (dtype() == DType::bf16) return rounded_tree_sum(leaves, out_dtype, out, count);
  tree_reduce(ReduceOp::sum, DType::f32, leaves, out, count);
}

std::uint64_t hash_of(const TreeLayout& layout) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words instead of bytes
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (std::size_t segment : layout.segments) add(segment);
  for (const auto& positions : layout.positions) {
    add(positions.size());
    for (int position : positions) add(static_cast<std::uint64_t>(position));
  }
  return hash;
}

std::unique_ptr<TreeReducer> make_tree_reducer(Transport& transport, int channel, IndexedLayout layout,
                                               CollectiveRunner run, const TimeLimit& limit) {
  if (auto memory = transport.shared_memory(SharedReducer::bytes(layout), limit)) {
    return std::make_unique<SharedReducer>(transport, channel, std::move(layout), std::move(run), std::move(memory));
  }
  return std::make_unique<SendingReducer>(transport, channel, std::move(layout), std::move(run));
}

}  // namespace lockstep
