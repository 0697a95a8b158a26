// Peers that are threads of one process: they share memory already, and put messages directly into mailboxes.
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <thread>

#include "lockstep/comm/peers.h"

namespace lockstep {
namespace {

std::shared_ptr<std::byte> zeroed_memory(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "process group: cannot allocate {} bytes", bytes);
  return {static_cast<std::byte*>(memory), [bytes](std::byte* start) { ::munmap(start, bytes); }};
}

// State that all ranks share. The first rank that asks for memory allocates it for all.
class World {
 public:
  explicit World(int size) : mailboxes_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(mailboxes_.size()); }
  Mailbox& mailbox(int rank) { return mailboxes_[static_cast<std::size_t>(rank)]; }

  // The k-th allocation is the same for all ranks.
  std::shared_ptr<std::byte> memory(std::size_t k, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    Shared& shared = memories_[k];
    if (!shared.memory) shared.memory = zeroed_memory(bytes);
    std::shared_ptr<std::byte> memory = shared.memory;
    if (++shared.taken == size()) memories_.erase(k);  // from now on, the ranks own it
    return memory;
  }

  std::shared_ptr<World> subgroup(const std::string& name, const std::vector<int>& ranks) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<World>& known = subgroups_[{name, ranks}];
    std::shared_ptr<World> world = known.lock();
    if (!world) known = world = std::make_shared<World>(static_cast<int>(ranks.size()));
    return world;
  }

 private:
  struct Shared {
    std::shared_ptr<std::byte> memory;
    int taken = 0;
  };

  std::vector<Mailbox> mailboxes_;
  std::mutex mutex_;
  std::map<std::size_t, Shared> memories_;
  std::map<std::pair<std::string, std::vector<int>>, std::weak_ptr<World>> subgroups_;
};

class ThreadPeers final : public Peers {
 public:
  ThreadPeers(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~ThreadPeers() override {
    for (int other = 0; other < size(); ++other) world_->mailbox(other).close(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }

  void watch(std::function<void(const RankFailure&)>) override {}  // no thread dies alone

  std::shared_ptr<std::byte> allocate(std::size_t bytes, const TimeLimit&,
                                      const std::function<std::optional<RankFailure>()>&) override {
    return world_->memory(allocations_++, bytes);
  }

  void send(int destination, int tag, Message message, const TimeLimit& limit,
            const std::function<std::optional<RankFailure>()>& failure) override {
    Mailbox& mailbox = world_->mailbox(destination);
    const auto has_room = [&] {
      const std::size_t unreceived = mailbox.unreceived(rank_);
      return unreceived == 0 || unreceived + message.bytes.size() <= kMostUnreceived;
    };
    while (!has_room()) {
      if (const auto failed = failure()) throw_rank_failure(*failed);
      if (world_->mailbox(rank_).closed(destination)) throw_rank_failure(lost(destination, kClosedGroup));
      if (limit.over()) throw_rank_failure(overdue(destination, true, limit));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    mailbox.put(rank_, tag, std::move(message));
  }
  std::optional<Message> receive(int source, int tag, const TimeLimit& limit,
                                 const std::function<bool()>& give_up) override {
    return world_->mailbox(rank_).take(source, tag, limit, give_up);
  }
  bool closed(int source) const override { return world_->mailbox(rank_).closed(source); }
  bool ended(int source) const override { return world_->mailbox(rank_).ended(source); }

  std::unique_ptr<Peers> subgroup(const std::vector<int>& ranks, const std::string& name, const TimeLimit&) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<ThreadPeers>(world_->subgroup(name, ranks), static_cast<int>(place));
  }

 private:
  std::shared_ptr<World> world_;
  int rank_;
  std::size_t allocations_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Peers>> make_thread_peers(int size) {
  auto world = std::make_shared<World>(size);
  std::vector<std::unique_ptr<Peers>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(std::make_unique<ThreadPeers>(world, rank));
  return all;
}

}  // namespace lockstep
