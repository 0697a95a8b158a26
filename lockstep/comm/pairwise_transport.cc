#include "lockstep/comm/pairwise_transport.h"

#include <cstring>

namespace lockstep {
namespace {

// The most bytes that one exchange sends: enough to keep the network busy with a bounded buffer.
constexpr std::size_t kCapacity[kChannels] = {std::size_t{1} << 20, std::size_t{8} << 20};

int tag_of(int channel, int part) { return channel * 2 + part; }

}  // namespace

PairwiseTransport::PairwiseTransport(int rank, int size) : rank_(rank), size_(size) {
  for (Scratch& scratch : scratch_) {
    scratch.sent.resize(static_cast<std::size_t>(size));
    scratch.received.resize(static_cast<std::size_t>(size));
    scratch.blocks.resize(static_cast<std::size_t>(size));
  }
}

std::size_t PairwiseTransport::capacity(int channel) const { return kCapacity[channel]; }

void PairwiseTransport::exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                                 std::span<MutableBlock> from, const TimeLimit& limit) {
  Scratch& scratch = scratch_[static_cast<std::size_t>(channel)];
  if (header != nullptr) open(channel, *header, to, from, limit);
  const auto travels = [&](std::size_t bytes) { return header == nullptr ? bytes > 0 : bytes > kInline; };
  const auto transfers = begin_transfers(channel);
  const int tag = tag_of(channel, 1);
  for_each_peer([&](std::size_t r) {
    if (!travels(from[r].bytes)) return;
    if (from[r].data == nullptr) {
      auto& block = scratch.blocks[r];
      if (block.size() < from[r].bytes) block.resize(from[r].bytes);
      from[r].data = block.data();
    }
    transfers->receive(static_cast<int>(r), tag, from[r].data, from[r].bytes);
  });
  for_each_peer([&](std::size_t r) {
    if (travels(to[r].bytes)) transfers->send(static_cast<int>(r), tag, to[r].data, to[r].bytes);
  });
  finish(*transfers, limit);
}

template <typename Visit>
void PairwiseTransport::for_each_peer(const Visit& visit) const {
  // Starts with the next rank, so that ranks do not all exchange with rank 0 first.
  for (int k = 1; k < size_; ++k) visit(static_cast<std::size_t>((rank_ + k) % size_));
}

// Exchanges headers and small blocks. Until ranks agree, no rank knows the lengths of the others' blocks.
void PairwiseTransport::open(int channel, const CollectiveHeader& header, std::span<const ConstBlock> to,
                             std::span<MutableBlock> from, const TimeLimit& limit) {
  Scratch& scratch = scratch_[static_cast<std::size_t>(channel)];
  const auto transfers = begin_transfers(channel);
  const int tag = tag_of(channel, 0);
  for_each_peer(
      [&](std::size_t r) { transfers->receive(static_cast<int>(r), tag, &scratch.received[r], sizeof(Opening)); });
  for_each_peer([&](std::size_t r) {
    Opening& opening = scratch.sent[r];
    opening.header = header;
    const std::size_t bytes = to[r].bytes <= kInline ? to[r].bytes : 0;
    if (bytes > 0) std::memcpy(opening.block, to[r].data, bytes);
    transfers->send(static_cast<int>(r), tag, &opening, sizeof header + bytes);
  });
  finish(*transfers, limit);
  scratch.received[static_cast<std::size_t>(rank_)].header = header;
  for (std::size_t r = 1; r < scratch.received.size(); ++r) {
    const CollectiveHeader &first = scratch.received[0].header, &other = scratch.received[r].header;
    if (!(other == first)) give_up(disagreement(0, first, static_cast<int>(r), other));
  }
  for_each_peer([&](std::size_t r) {
    if (from[r].bytes == 0 || from[r].bytes > kInline) return;
    if (from[r].data == nullptr) {
      from[r].data = scratch.received[r].block;
    } else {
      std::memcpy(from[r].data, scratch.received[r].block, from[r].bytes);
    }
  });
}

void PairwiseTransport::finish(Transfers& transfers, const TimeLimit& limit) {
  const Transfers::Outcome outcome = transfers.wait(limit);
  if (outcome.result != Transfers::Result::done) give_up(outcome, limit);
}

void PairwiseTransport::give_up(const RankFailure& failure) {
  fail(failure);
  throw_rank_failure(*this->failure());
}

}  // namespace lockstep
