#include "lockstep/comm/shared_memory_transport.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

#include "lockstep/base/futex.h"
#include "lockstep/base/spin.h"
#include "lockstep/comm/shared_segment.h"
#include "lockstep/device/cgroup.h"

namespace lockstep {
namespace {

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(std::unique_ptr<Peers> peers, const TimeLimit& limit)
      : peers_(std::move(peers)), rank_(peers_->rank()), size_(peers_->size()),
        segment_(peers_->allocate(SharedSegment::bytes(size_), limit, [] { return std::nullopt; }), size_) {
    peers_->watch([this](const RankFailure& failure) { lose(failure); });
    try {
      count_cores(limit);
    } catch (...) {
      peers_->watch(nullptr);  // the callback must not use this object later
      throw;
    }
  }

  ~SharedMemoryTransport() override {
    // Departs first: a rank that sees the connection closed must know that this rank has left.
    segment_.depart(rank_);
    peers_.reset();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                std::span<MutableBlock> from, const TimeLimit& limit) override {
    const std::uint32_t number = ++exchanges_[channel];
    const unsigned parity = number & 1;
    write_blocks(channel, parity, to);
    SharedSegment::RankChannel& own = segment_.rank_channel(channel, rank_);
    if (header != nullptr) own.headers[parity] = *header;
    arrive(channel, number);
    wait_for_all(channel, number, limit);
    if (header != nullptr) compare_headers(channel, parity);
    for (int r = 0; r < size_; ++r) {
      MutableBlock& block = from[static_cast<std::size_t>(r)];
      if (r == rank_ || block.bytes == 0) continue;
      std::byte* there = segment_.staging(channel, r, parity) + segment_.offsets(channel, r, parity)[rank_];
      if (block.data == nullptr) {
        block.data = there;
      } else {
        std::memcpy(block.data, there, block.bytes);
      }
    }
  }

  // Leaves up to 64 bytes for each rank, because blocks begin at multiples of 64 bytes.
  std::size_t capacity(int channel) const override {
    return SharedSegment::kStaging[channel] - 64 * static_cast<std::size_t>(size_);
  }

  void send(int destination, int tag, Message message, const TimeLimit& limit) override {
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    peers_->send(destination, tag, std::move(message), limit, [this] { return failure(); });
  }

  Message receive(int source, int tag, const TimeLimit& limit) override {
    auto message = peers_->receive(source, tag, limit, [this] { return failure().has_value(); });
    if (message) return std::move(*message);
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    if (peers_->closed(source)) throw_rank_failure(lost(source, kClosedGroup));
    if (peers_->ended(source)) give_up(receive_beside_closing(rank_, source));
    give_up(overdue(source, peers_->answers(source), limit));
  }

  std::shared_ptr<std::byte> shared_memory(std::size_t bytes, const TimeLimit& limit) override {
    return peers_->allocate(bytes, limit, [this] { return failure(); });
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) override {
    return make_shared_memory_transport(peers_->subgroup(ranks, name, TimeLimit(timeout)), timeout);
  }

  void fail(const RankFailure& failure) override { segment_.fail(failure); }
  // A reason that a rank reports counts for more than its closed connection. But a rank that was cut off sees all its
  // connections closed, and may be the first to report another rank as lost. So if the reported reason is a closed
  // connection, or the reporting rank died, this rank waits for its own connections to show which rank is gone.
  std::optional<RankFailure> failure() const override {
    const std::optional<RankFailure> told = segment_.failure();
    const bool is_sure = told && told->reason != lost(told->culprit, kClosedConnection).reason &&
                         told->reason != SharedSegment::kLostInReport;
    if (is_sure) return told;
    if (connection_closed_.load()) return lost_;
    if (!told) return std::nullopt;
    for (int i = 0; i < 1000 && !connection_closed_.load(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return connection_closed_.load() ? lost_ : told;
  }
  bool may_spin() const override { return may_spin_; }

 private:
  // Counts the cores that the ranks of this host may use together.
  void count_cores(const TimeLimit& limit) {
    ::sched_getaffinity(0, sizeof(SharedSegment::CpuMask), segment_.rank(rank_).cpus.data());
    const std::vector<ConstBlock> to(static_cast<std::size_t>(size_));
    std::vector<MutableBlock> from(static_cast<std::size_t>(size_));
    exchange(0, nullptr, to, from, limit);
    SharedSegment::CpuMask all{};
    for (int r = 0; r < size_; ++r) CPU_OR_S(sizeof all, all.data(), all.data(), segment_.rank(r).cpus.data());
    // Respects the quota: ranks that spin would use up the time of ranks that compute.
    const int quota = read_cgroup_limits().cpus.value_or(INT_MAX);
    may_spin_ = std::min(CPU_COUNT_S(sizeof all, all.data()), quota) >= size_;
  }

  // Writes identical blocks in a row once.
  void write_blocks(int channel, unsigned parity, std::span<const ConstBlock> to) const {
    std::byte* staging = segment_.staging(channel, rank_, parity);
    std::uint32_t* offsets = segment_.offsets(channel, rank_, parity);
    std::size_t used = 0, begin = 0;
    ConstBlock last;
    for (int r = 0; r < size_; ++r) {
      const ConstBlock& block = to[static_cast<std::size_t>(r)];
      if (r == rank_ || block.bytes == 0) continue;
      if (block.data != last.data || block.bytes != last.bytes) {
        begin = used;
        std::memcpy(staging + begin, block.data, block.bytes);
        used += (block.bytes + 63) / 64 * 64;
        last = block;
      }
      offsets[r] = static_cast<std::uint32_t>(begin);
    }
  }

  void arrive(int channel, std::uint32_t number) const {
    SharedSegment::Channel& shared = segment_.channel(channel);
    segment_.rank_channel(channel, rank_).exchange.store(number);
    if (shared.arrived.fetch_add(1) + 1 < static_cast<std::uint32_t>(size_)) return;
    shared.arrived.store(0);
    shared.state.fetch_add(SharedSegment::Channel::kExchange);
    if (shared.sleepers.load() != 0) futex_wake_all(shared.state, FutexScope::shared_memory);
  }

  void wait_for_all(int channel, std::uint32_t number, const TimeLimit& limit) {
    SharedSegment::Channel& shared = segment_.channel(channel);
    // The counter wraps around, but two ranks differ by one exchange at most.
    const auto complete = [&] { return is_complete(shared.state.load(), number); };
    if (complete() || (may_spin_ && spin_until(complete, kSpinTime))) return;
    for (;;) {
      const std::uint32_t state = shared.state.load();
      if (is_complete(state, number)) return;
      throw_if_hopeless(channel, number, limit);
      shared.sleepers.fetch_add(1);
      if (shared.state.load() == state) {
        const Asleep asleep;
        futex_wait(shared.state, state, FutexScope::shared_memory, limit.next_look());
      }
      shared.sleepers.fetch_sub(1);
    }
  }

  static bool is_complete(std::uint32_t state, std::uint32_t number) {
    const std::uint32_t ahead = (state / SharedSegment::Channel::kExchange - number) << 8;  // 24 bits
    return static_cast<std::int32_t>(ahead) >= 0;
  }

  // Throws if an incomplete exchange has failed, lacks a rank that has left, or is out of time.
  void throw_if_hopeless(int channel, std::uint32_t number, const TimeLimit& limit) {
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    for (int r = 0; r < size_; ++r) {
      // Reads `departed` before `exchange`, because the rank may have arrived and then left.
      const bool departed = segment_.rank(r).departed.load() != 0;
      if (departed && segment_.rank_channel(channel, r).exchange.load() != number) give_up(lost(r, kClosedGroup));
    }
    if (limit.over() && !is_complete(segment_.channel(channel).state.load(), number)) {
      const int missing = missing_rank(channel, number);
      give_up(overdue(missing, peers_->answers(missing), limit));
    }
  }

  // The first rank that did not join and is not itself waiting in the other channel.
  int missing_rank(int channel, std::uint32_t number) const {
    int first = -1;
    for (int r = 0; r < size_; ++r) {
      if (segment_.rank_channel(channel, r).exchange.load() == number) continue;
      if (first < 0) first = r;
      const int other = 1 - channel;
      const std::uint32_t there = segment_.rank_channel(other, r).exchange.load();
      if (there == 0 || is_complete(segment_.channel(other).state.load(), there)) return r;
    }
    return first;
  }

  void compare_headers(int channel, unsigned parity) {
    const CollectiveHeader& first = segment_.rank_channel(channel, 0).headers[parity];
    for (int r = 1; r < size_; ++r) {
      const CollectiveHeader& other = segment_.rank_channel(channel, r).headers[parity];
      if (!(other == first)) give_up(disagreement(0, first, r, other));
    }
  }

  [[noreturn]] void give_up(const RankFailure& failure) {
    segment_.fail(failure);
    throw_rank_failure(*this->failure());  // another rank may have been first
  }

  void lose(const RankFailure& failure) {
    // Ignores ranks that have finished: they close their connections, which is no failure.
    const bool knows_whom = failure.culprit >= 0 && failure.culprit < size_;
    if (knows_whom && segment_.rank(failure.culprit).departed.load() != 0 && !segment_.failure()) return;
    if (!connection_closed_.load()) {
      lost_ = failure;
      connection_closed_.store(true);
    }
    segment_.fail(failure);
  }

  std::unique_ptr<Peers> peers_;
  int rank_, size_;
  SharedSegment segment_;
  std::array<std::uint32_t, kChannels> exchanges_{};
  bool may_spin_ = false;
  // The failure of the first rank whose connection closed without a shutdown message. Written by the watching thread.
  RankFailure lost_;
  std::atomic<bool> connection_closed_{false};
};

}  // namespace

std::unique_ptr<Transport> make_shared_memory_transport(std::unique_ptr<Peers> peers,
                                                        std::chrono::milliseconds timeout) {
  check(peers->size() <= kMaxRanks, "process group: {} ranks on this host, expected at most {}", peers->size(),
        kMaxRanks);
  // Allows twice the timeout, so that missing heartbeats, which name the stopped process, are noticed first.
  return std::make_unique<SharedMemoryTransport>(std::move(peers), TimeLimit(2 * timeout));
}

}  // namespace lockstep
