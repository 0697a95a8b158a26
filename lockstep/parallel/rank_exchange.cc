#include "lockstep/parallel/rank_exchange.h"

#include <algorithm>
#include <cstring>

#include "lockstep/backend/context.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

class RankExchange final : public ShardExchange {
 public:
  RankExchange(std::shared_ptr<Communicator> communicator, JobShares shares, std::vector<std::int64_t> counts,
               std::shared_ptr<StopVotes> votes)
      : communicator_(std::move(communicator)), shares_(std::move(shares)), counts_(std::move(counts)),
        votes_(std::move(votes)) {}

  bool joins_as(const ShardExchange& other) const override {
    const auto* ranks = dynamic_cast<const RankExchange*>(&other);
    return ranks && ranks->communicator_ == communicator_ && ranks->shares_ == shares_ && ranks->counts_ == counts_;
  }

  std::optional<LaneId> lane(Device device) const override {
    return device == communicator_->device() ? std::optional(communicator_->lane(CommChannel::urgent)) : std::nullopt;
  }

  // An all-gather of equal parts: every rank sends as many slots as the rank with the most shards.
  std::vector<std::vector<Array>> gather(std::vector<std::vector<Array>> parts, std::string_view what) override {
    int world = communicator_->world_size();
    auto [first, last] = shares_.of_rank(communicator_->rank());
    const std::vector<Array>* shapes = nullptr;
    for (int s = first; s < last; ++s) {
      if (at(parts, s).empty()) continue;
      if (!shapes) shapes = &at(parts, s);
    }
    check(shapes != nullptr, "{}: this rank has no shard, expected one of {} to {}", what, first, last - 1);
    // A part's offset in its slot, and the slot's size.
    std::vector<std::size_t> offsets;
    std::size_t slot = 0;
    for (const Array& t : *shapes) {
      offsets.push_back(slot);
      slot += t.view().bytes();
    }

    std::vector<Array> reads, writes;
    std::vector<std::vector<Array>> all(counts_.size());
    // Copies this rank's shards into the slots to send, and other ranks' shards out of the received slots.
    struct Copy {
      View tensor;
      std::size_t rank, offset;
    };
    std::vector<Copy> out, in;
    std::size_t most = 0;
    for (int r = 0; r < world; ++r) {
      auto [a, b] = shares_.of_rank(r);
      most = std::max(most, static_cast<std::size_t>(b - a));
    }
    for (int r = 0; r < world; ++r) {
      auto [a, b] = shares_.of_rank(r);
      bool mine = r == communicator_->rank();
      for (int s = a; s < b; ++s) {
        if (counts_[static_cast<std::size_t>(s)] == 0) continue;
        auto place = static_cast<std::size_t>(s - a);
        check(!mine || at(parts, s).size() == shapes->size(), "{}: shard {} gives {} tensors, expected {}", what, s,
              at(parts, s).size(), shapes->size());
        for (std::size_t i = 0; i < shapes->size(); ++i) {
          const Array& like = (*shapes)[i];
          if (mine) {
            // Shards travel in the plain layout.
            const Array t = ops::readable_from(ops::to_layout(at(parts, s)[i], Layout::plain), communicator_->device());
            check(t.shape() == like.shape() && t.dtype() == like.dtype(), "{}: shard {} gives {}, expected {}", what, s,
                  t, like);
            out.push_back({t.view(), 0, place * slot + offsets[i]});
            reads.push_back(t);
            at(all, s).push_back(t);
          } else {
            ops::ShardScope scope(s);
            Array t = ops::empty(like.shape(), like.dtype(), communicator_->device());
            in.push_back({t.view(), static_cast<std::size_t>(r), place * slot + offsets[i]});
            writes.push_back(t);
            at(all, s).push_back(t);
          }
        }
      }
    }
    // A vote is one more f32 after the shards.
    const std::optional<StopVotes::Vote> vote = votes_->take();
    const std::size_t shards = most * slot, bytes = shards + (vote ? sizeof vote->mine : 0);
    if (vote) writes.push_back(vote->sum);
    communicator_->push(what, CommChannel::urgent, reads, writes,
                        [group = &communicator_->group(), out = std::move(out), in = std::move(in), shards, bytes,
                         world, mine = vote ? vote->mine : 0, votes = vote ? vote->sum.view().as<float>() : nullptr,
                         label = std::string(what)](KernelContext& context) {
                          std::size_t all_bytes = bytes * static_cast<std::size_t>(world);
                          auto* send = static_cast<std::byte*>(context.scratch.get(bytes + all_bytes));
                          auto* receive = send + bytes;
                          std::memset(send, 0, bytes);
                          for (const Copy& copy : out)
                            std::memcpy(send + copy.offset, copy.tensor.data, copy.tensor.bytes());
                          if (votes) std::memcpy(send + shards, &mine, sizeof mine);
                          group->all_gather({send, bytes, DType::u8}, {receive, all_bytes, DType::u8},
                                            {.label = label, .channel = CommChannel::urgent, .wait = true});
                          for (const Copy& copy : in)
                            std::memcpy(copy.tensor.data, receive + copy.rank * bytes + copy.offset,
                                        copy.tensor.bytes());
                          if (!votes) return;
                          *votes = 0;
                          for (int r = 0; r < world; ++r) {
                            float vote = 0;
                            std::memcpy(&vote, receive + static_cast<std::size_t>(r) * bytes + shards, sizeof vote);
                            *votes += vote;
                          }
                        });
    return all;
  }

 private:
  static std::vector<Array>& at(std::vector<std::vector<Array>>& parts, int shard) {
    return parts[static_cast<std::size_t>(shard)];
  }

  std::shared_ptr<Communicator> communicator_;
  JobShares shares_;
  std::vector<std::int64_t> counts_;
  std::shared_ptr<StopVotes> votes_;
};

}  // namespace

std::shared_ptr<ShardExchange> make_shard_exchange(std::shared_ptr<Communicator> communicator, JobShares shares,
                                                   std::vector<std::int64_t> counts, std::shared_ptr<StopVotes> votes) {
  return std::make_shared<RankExchange>(std::move(communicator), std::move(shares), std::move(counts),
                                        std::move(votes));
}

}  // namespace lockstep
