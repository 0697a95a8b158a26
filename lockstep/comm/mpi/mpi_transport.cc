#include "lockstep/comm/mpi/mpi_transport.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <thread>

#include "lockstep/base/spin.h"
#include "lockstep/comm/pairwise_transport.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// MPI cannot wait with a time limit, so callers poll. Their pauses grow with the time spent.
class Backoff {
 public:
  explicit Backoff(bool may_spin) : may_spin_(may_spin) {}
  void pause() const {
    const auto waited = Clock::now() - begin_;
    if (may_spin_ && waited < kSpinTime && SpinPolicy::thread_may_spin()) return spin_pause();
    const Asleep asleep;
    std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 16, kShortest, kLongest));
  }

 private:
  static constexpr std::chrono::microseconds kShortest{10}, kLongest{1000};
  const bool may_spin_;
  const Clock::time_point begin_ = Clock::now();
};

// Time for messages that a rank sent before its shutdown message, which MPI may deliver before them.
class DrainTime {
 public:
  // Call it when the rank has left and a message from it is still expected.
  bool is_over() {
    if (!limit_) limit_.emplace(std::chrono::seconds(1));
    return limit_->over();
  }

 private:
  std::optional<TimeLimit> limit_;
};

class MpiTransport final : public PairwiseTransport {
 public:
  MpiTransport(std::shared_ptr<MpiSession> session, MPI_Comm ranks, bool may_spin)
      : PairwiseTransport(rank_in(ranks), size_of(ranks)), session_(std::move(session)), ranks_(ranks),
        may_spin_(may_spin) {
    check_mpi(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "making a group");
    MPI_Group world, some;
    check_mpi(MPI_Comm_group(session_->world(), &world), "making a group");
    check_mpi(MPI_Comm_group(ranks_, &some), "making a group");
    world_ranks_.resize(static_cast<std::size_t>(size()));
    std::vector<int> all(world_ranks_.size());
    std::iota(all.begin(), all.end(), 0);
    check_mpi(MPI_Group_translate_ranks(some, size(), all.data(), world, world_ranks_.data()), "making a group");
    MPI_Group_free(&world);
    MPI_Group_free(&some);
  }
  ~MpiTransport() override {
    session_->call([&] { MPI_Comm_free(&ranks_); });
  }

  void send(int destination, int tag, Message message, const TimeLimit& limit) override {
    const std::vector<std::byte> wire = pack(tag, message);
    check(wire.size() <= INT_MAX, "mpi: a message of {} bytes, expected at most {}", wire.size(), INT_MAX);
    MpiTransfers transfers(*this);
    transfers.send(destination, kMessageTag, wire.data(), wire.size());
    const Transfers::Outcome outcome = transfers.wait(limit);
    if (outcome.result != Transfers::Result::done) give_up(outcome, limit);
  }

  Message receive(int source, int tag, const TimeLimit& limit) override {
    const Backoff backoff(may_spin_);
    DrainTime drain_time;
    const auto at_once = [] { return true; };
    for (;;) {
      session_->call([this] { take_messages(); });
      if (auto message = mailbox_.take(source, tag, limit, at_once)) return std::move(*message);
      if (auto failure = this->failure()) throw_rank_failure(*failure);
      if (departed(source) && drain_time.is_over()) PairwiseTransport::give_up(lost(source, kClosedGroup));
      if (mailbox_.ended(source)) PairwiseTransport::give_up(receive_beside_closing(rank(), source));
      if (limit.over()) PairwiseTransport::give_up(overdue(source, limit));
      backoff.pause();
    }
  }

  std::unique_ptr<Transport> subgroup(const std::vector<int>& ranks, const std::string&,
                                      std::chrono::milliseconds) override {
    MPI_Group all, some;
    MPI_Comm made;
    check_mpi(MPI_Comm_group(ranks_, &all), "making a group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "making a group");
    check_mpi(MPI_Comm_create_group(ranks_, some, 0, &made), "making a group");
    MPI_Group_free(&all);
    MPI_Group_free(&some);
    return std::make_unique<MpiTransport>(session_, made, may_spin_);
  }

  void fail(const RankFailure& failure) override { session_->fail(failure); }
  std::optional<RankFailure> failure() const override { return session_->failure(); }
  bool may_spin() const override { return may_spin_; }

 private:
  static constexpr int kMessageTag = kTags;

  class MpiTransfers final : public Transfers {
   public:
    explicit MpiTransfers(MpiTransport& transport) : transport_(transport) {}

    void receive(int source, int tag, void* data, std::size_t bytes) override {
      begin(source, [&](MPI_Request* request) {
        return MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, tag, transport_.ranks_, request);
      });
    }
    void send(int destination, int tag, const void* data, std::size_t bytes) override {
      begin(destination, [&](MPI_Request* request) {
        return MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, destination, tag, transport_.ranks_, request);
      });
    }

    Outcome wait(const TimeLimit& limit) override {
      const Backoff backoff(transport_.may_spin_);
      DrainTime drain_time;
      for (;;) {
        int done = 0;
        const bool alive = transport_.session_->call([&] {
          broken_ |= MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE) !=
                     MPI_SUCCESS;
          // Takes messages: another rank may be waiting for this rank to receive its message.
          if (done == 0) transport_.take_messages();
        });
        if (broken_ || !alive) return {Result::broken, first_pending()};
        if (done != 0) return {};
        if (const int gone = first_departed(); gone >= 0 && drain_time.is_over()) return {Result::broken, gone};
        if (limit.over()) return {Result::timed_out, first_pending()};
        backoff.pause();
      }
    }

   private:
    template <typename Begin>
    void begin(int rank, const Begin& begin) {
      requests_.push_back(MPI_REQUEST_NULL);
      others_.push_back(rank);
      transport_.session_->call([&] { broken_ |= begin(&requests_.back()) != MPI_SUCCESS; });
    }

    // The rank of the first unfinished transfer whose rank `counts` accepts; -1 if there is none.
    template <typename Counts>
    int first_pending(const Counts& counts) {
      int rank = -1;
      transport_.session_->call([&] {
        for (std::size_t i = 0; i < requests_.size() && rank < 0; ++i) {
          int done = 0;
          MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
          if (done == 0 && counts(others_[i])) rank = others_[i];
        }
      });
      return rank;
    }
    int first_pending() {
      return first_pending([](int) { return true; });
    }
    // The same, among ranks that have departed.
    int first_departed() {
      if (!transport_.session_->any_departed()) return -1;
      std::vector<int> gone;
      std::ranges::copy_if(others_, std::back_inserter(gone), [this](int rank) { return transport_.departed(rank); });
      if (gone.empty()) return -1;
      return first_pending([&](int rank) { return std::ranges::find(gone, rank) != gone.end(); });
    }

    MpiTransport& transport_;
    std::vector<MPI_Request> requests_;
    std::vector<int> others_;
    bool broken_ = false;
  };

  static int rank_in(MPI_Comm ranks) {
    int rank = 0;
    check_mpi(MPI_Comm_rank(ranks, &rank), "making a group");
    return rank;
  }
  static int size_of(MPI_Comm ranks) {
    int size = 0;
    check_mpi(MPI_Comm_size(ranks, &size), "making a group");
    return size;
  }

  std::unique_ptr<Transfers> begin_transfers(int /*channel*/) override { return std::make_unique<MpiTransfers>(*this); }

  void give_up(const Transfers::Outcome& outcome, const TimeLimit& limit) override {
    if (auto failure = this->failure()) throw_rank_failure(*failure);
    if (outcome.result == Transfers::Result::timed_out) PairwiseTransport::give_up(overdue(outcome.rank, limit));
    const bool left = outcome.rank >= 0 && departed(outcome.rank);
    PairwiseTransport::give_up(lost(outcome.rank, left ? kClosedGroup : kClosedConnection));
  }

  bool departed(int rank) const { return session_->departed(world_ranks_[static_cast<std::size_t>(rank)]); }

  RankFailure overdue(int rank, const TimeLimit& limit) const {
    return lockstep::overdue(rank, session_->answers(world_ranks_[static_cast<std::size_t>(rank)]), limit);
  }

  // Packs a point-to-point message: header, tag, and bytes.
  static std::vector<std::byte> pack(int tag, const Message& message) {
    std::vector<std::byte> wire(sizeof message.header + sizeof tag + message.bytes.size());
    std::memcpy(wire.data(), &message.header, sizeof message.header);
    std::memcpy(wire.data() + sizeof message.header, &tag, sizeof tag);
    std::copy(message.bytes.begin(), message.bytes.end(),
              wire.end() - static_cast<std::ptrdiff_t>(message.bytes.size()));
    return wire;
  }

  // Moves arrived messages into the mailbox. Call it inside a session call.
  void take_messages() {
    for (;;) {
      int there = 0, bytes = 0;
      MPI_Message handle;
      MPI_Status status;
      if (MPI_Improbe(MPI_ANY_SOURCE, kMessageTag, ranks_, &there, &handle, &status) != MPI_SUCCESS || there == 0)
        return;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::vector<std::byte> wire(static_cast<std::size_t>(bytes));
      if (MPI_Mrecv(wire.data(), bytes, MPI_BYTE, &handle, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
      Message message;
      int tag = 0;
      std::memcpy(&message.header, wire.data(), sizeof message.header);
      std::memcpy(&tag, wire.data() + sizeof message.header, sizeof tag);
      message.bytes.assign(wire.begin() + sizeof message.header + sizeof tag, wire.end());
      mailbox_.put(status.MPI_SOURCE, tag, std::move(message));
    }
  }

  const std::shared_ptr<MpiSession> session_;
  MPI_Comm ranks_;
  std::vector<int> world_ranks_;  // each rank's rank in the session's world
  const bool may_spin_;
  Mailbox mailbox_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> session, bool may_spin) {
  MPI_Comm ranks;
  check_mpi(MPI_Comm_dup(session->world(), &ranks), "making a group");
  return std::make_unique<MpiTransport>(std::move(session), ranks, may_spin);
}

}  // namespace lockstep
