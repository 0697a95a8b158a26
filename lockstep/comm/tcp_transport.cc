#include "lockstep/comm/tcp_transport.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "lockstep/comm/control_channel.h"
#include "lockstep/comm/pairwise_transport.h"
#include "lockstep/comm/socket_transfers.h"

namespace lockstep {
namespace {

class TcpTransport final : public PairwiseTransport {
 public:
  TcpTransport(GroupMembership group, const TimeLimit& limit)
      : PairwiseTransport(group.rank, group.size), group_(std::move(group)),
        sockets_(ControlChannel::connect(group_, SocketKind::tcp, kChannels + 1, limit)),
        control_(group_.rank, std::move(sockets_[kChannels]), limit.length()) {
    control_.watch([this](const RankFailure& failure) {
      if (note(failure)) break_off();
    });
  }

  ~TcpTransport() override {
    control_.watch(nullptr);
    // Tells the failure before the shutdown message: a rank that reads only that message would report this rank as
    // lost.
    if (failure_) control_.tell_failure(*failure_);
  }

  void send(int destination, int tag, Message message, const TimeLimit& limit) override {
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    control_.send(destination, tag, message, limit);
  }

  Message receive(int source, int tag, const TimeLimit& limit) override {
    auto message = control_.receive(source, tag, limit, [this] { return failure().has_value(); });
    if (message) return std::move(*message);
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    if (control_.closed(source)) give_up(lost(source, kClosedGroup));
    if (control_.ended(source)) give_up(receive_beside_closing(rank(), source));
    give_up(overdue(source, control_.answers(source), limit));
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) override {
    return make_tcp_transport(subgroup_of(group_, ranks, name), timeout);
  }

  void fail(const RankFailure& failure) override {
    if (!note(failure)) return;
    control_.tell_failure(failure);  // first, because closed channels look like a lost rank
    break_off();
  }

  std::optional<RankFailure> failure() const override {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  // Ranks may be on any hosts, and a wait for the network is long anyway.
  bool may_spin() const override { return false; }

 private:
  std::unique_ptr<Transfers> begin_transfers(int channel) override {
    return std::make_unique<SocketTransfers>(sockets_[static_cast<std::size_t>(channel)]);
  }

  using PairwiseTransport::give_up;
  void give_up(const Transfers::Outcome& outcome, const TimeLimit& limit) override {
    if (outcome.result == Transfers::Result::broken) {
      // Some rank failed, and the control channel will name it soon. The peer may have left because of that failure;
      // then a short wait is enough.
      for (int left = 500; left > 0 && !failure(); --left) {
        if (control_.departed(outcome.rank)) left = std::min(left, 100);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    if (outcome.result == Transfers::Result::forged) give_up(lost(outcome.rank, kForged));
    if (outcome.result == Transfers::Result::timed_out) {
      give_up(overdue(outcome.rank, control_.answers(outcome.rank), limit));
    }
    give_up(lost(outcome.rank, control_.departed(outcome.rank) ? kClosedGroup : kClosedConnection));
  }

  // Returns true for the first failure.
  bool note(const RankFailure& failure) {
    std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = failure;
    return true;
  }

  // Ends all transfers in flight and all later ones.
  void break_off() const {
    for (int channel = 0; channel < kChannels; ++channel) {
      for (const PeerSocket& socket : sockets_[static_cast<std::size_t>(channel)]) ::shutdown(socket.get(), SHUT_RDWR);
    }
  }

  GroupMembership group_;
  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  PeerSockets sockets_;  // one connection with every peer for each channel, and one for the control channel
  ControlChannel control_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(GroupMembership group, std::chrono::milliseconds timeout) {
  check(group.size <= kMaxRanks, "process group: {} ranks, expected at most {}", group.size, kMaxRanks);
  return std::make_unique<TcpTransport>(std::move(group), TimeLimit(timeout));
}

}  // namespace lockstep
