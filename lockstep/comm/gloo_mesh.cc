#include "lockstep/comm/gloo_mesh.h"

#include <array>
#include <cstring>
#include <thread>

#include "lockstep/comm/gloo_transport.h"
#include "lockstep/comm/peer_links.h"

namespace lockstep {
namespace {

// Small blocks travel with the header.
constexpr std::size_t kInline = 4096;
// Of an exchange: enough to keep the line busy, and no more scratch than that.
constexpr std::size_t kCapacity[kLanes] = {std::size_t{1} << 20, std::size_t{8} << 20};

struct Opening {
  CollectiveHeader header;
  std::byte block[kInline];
};

class GlooMesh final : public Mesh {
 public:
  GlooMesh(Introduction group, const TimeLimit& limit)
      : group_(std::move(group)),
        links_(group_.rank, std::move(connect_peers(group_, SocketKind::tcp, 1, limit)[0])),
        transport_(group_, links_, limit) {
    for (Scratch& scratch : scratch_) {
      scratch.sent.resize(static_cast<std::size_t>(size()));
      scratch.received.resize(static_cast<std::size_t>(size()));
      scratch.blocks.resize(static_cast<std::size_t>(size()));
    }
    links_.watch([this](const RankFailure& failure) { note(failure); });
  }

  ~GlooMesh() override { links_.watch(nullptr); }

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }

  void exchange(int lane, const CollectiveHeader* header, std::span<const ConstBlock> to,
                std::span<MutableBlock> from, const TimeLimit& limit) override {
    Scratch& scratch = scratch_[static_cast<std::size_t>(lane)];
    if (header != nullptr) open(lane, *header, to, from, limit);
    const auto travels = [&](std::size_t bytes) { return header == nullptr ? bytes > 0 : bytes > kInline; };
    GlooTransport::Transfers transfers(transport_);
    const std::uint64_t tag = tag_of(lane, 1);
    for_each_peer([&](std::size_t r) {
      if (!travels(from[r].bytes)) return;
      if (from[r].data == nullptr) {
        auto& block = scratch.blocks[r];
        if (block.size() < from[r].bytes) block.resize(from[r].bytes);
        from[r].data = block.data();
      }
      transfers.receive(static_cast<int>(r), tag, from[r].data, from[r].bytes);
    });
    for_each_peer([&](std::size_t r) {
      if (travels(to[r].bytes)) transfers.send(static_cast<int>(r), tag, to[r].data, to[r].bytes);
    });
    finish(transfers, limit);
  }

  std::size_t capacity(int lane) const override { return kCapacity[lane]; }

  void send(int destination, int tag, Message message, const TimeLimit& limit) override {
    if (auto failure = this->failure()) throw_failure(*failure);
    links_.send(destination, tag, message, limit);
  }

  Message receive(int source, int tag, const TimeLimit& limit) override {
    auto message = links_.mailbox().take(source, tag, limit, [this] { return failure().has_value(); });
    if (message) return std::move(*message);
    if (auto failure = this->failure()) throw_failure(*failure);
    give_up(links_.mailbox().closed(source) ? lost(source, kClosedGroup) : no_answer(source, limit));
  }

  std::shared_ptr<std::byte> shared_memory(std::size_t, const TimeLimit&) override { return nullptr; }

  std::unique_ptr<Mesh> split(const std::vector<int>& ranks, const std::string& name,
                              std::chrono::milliseconds timeout) override {
    return make_gloo_mesh(part_of(group_, ranks, name), timeout);
  }

  void fail(const RankFailure& failure) override {
    if (!note(failure)) return;
    links_.tell_failure(failure);
  }

  std::optional<RankFailure> failure() const override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  // Ranks may be anywhere; waiting for the network takes long anyway.
  bool may_spin() const override { return false; }

 private:
  // Memory that exchanges of one lane use again and again.
  struct Scratch {
    std::vector<Opening> sent, received;
    std::vector<std::vector<std::byte>> blocks;
  };

  static std::uint64_t tag_of(int lane, int part) { return static_cast<std::uint64_t>(lane * 2 + part); }

  template <typename Visit>
  void for_each_peer(const Visit& visit) const {
    // Beginning behind this rank: not all of them turn to rank 0 first.
    for (int k = 1; k < size(); ++k) visit(static_cast<std::size_t>((rank() + k) % size()));
  }

  // Headers, and the small blocks. Until ranks agree, nobody knows how long the others' blocks are.
  void open(int lane, const CollectiveHeader& header, std::span<const ConstBlock> to, std::span<MutableBlock> from,
            const TimeLimit& limit) {
    Scratch& scratch = scratch_[static_cast<std::size_t>(lane)];
    GlooTransport::Transfers transfers(transport_);
    const std::uint64_t tag = tag_of(lane, 0);
    for_each_peer(
        [&](std::size_t r) { transfers.receive(static_cast<int>(r), tag, &scratch.received[r], sizeof(Opening)); });
    for_each_peer([&](std::size_t r) {
      Opening& opening = scratch.sent[r];
      opening.header = header;
      const std::size_t bytes = to[r].bytes <= kInline ? to[r].bytes : 0;
      if (bytes > 0) std::memcpy(opening.block, to[r].data, bytes);
      transfers.send(static_cast<int>(r), tag, &opening, sizeof header + bytes);
    });
    finish(transfers, limit);
    scratch.received[static_cast<std::size_t>(rank())].header = header;
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

  void finish(GlooTransport::Transfers& transfers, const TimeLimit& limit) {
    const auto outcome = transfers.wait(limit);
    if (outcome.result == GlooTransport::Transfers::Result::done) return;
    if (outcome.result == GlooTransport::Transfers::Result::broken) {
      // Someone failed, and is about to be named by the links.
      for (int i = 0; i < 500 && !failure() && !links_.departed(outcome.rank); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (auto failure = this->failure()) throw_failure(*failure);
    if (outcome.result == GlooTransport::Transfers::Result::timed_out) {
      give_up(no_answer(links_.silent_rank(outcome.rank), limit));
    }
    give_up(lost(outcome.rank, links_.departed(outcome.rank) ? kClosedGroup : kClosedConnection));
  }

  // True for the first failure.
  bool note(const RankFailure& failure) {
    {
      std::lock_guard lock(mutex_);
      if (failure_) return false;
      failure_ = failure;
    }
    transport_.break_off();
    return true;
  }

  [[noreturn]] void give_up(const RankFailure& failure) {
    fail(failure);
    throw_failure(*this->failure());
  }

  Introduction group_;
  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  std::array<Scratch, kLanes> scratch_;
  PeerLinks links_;
  GlooTransport transport_;
};

}  // namespace

std::unique_ptr<Mesh> make_gloo_mesh(Introduction group, std::chrono::milliseconds timeout) {
  check(group.size <= kMaxRanks, "process group: {} ranks, expected at most {}", group.size, kMaxRanks);
  return std::make_unique<GlooMesh>(std::move(group), TimeLimit(timeout));
}

}  // namespace lockstep
