// Internal: the exchange for transports that send tagged bytes from rank to rank.
#pragma once

#include <array>
#include <vector>

#include "lockstep/comm/transport.h"

namespace lockstep {

// Transfers that one thread starts and waits for. After destruction, no transfer reads or writes its memory.
class Transfers {
 public:
  enum class Result { done, timed_out, broken, forged };  // forged: the bytes are not those that the rank sent
  struct Outcome {
    Result result = Result::done;
    int rank = -1;  // the rank that wait() was waiting for
  };

  virtual ~Transfers() = default;
  virtual void receive(int source, int tag, void* data, std::size_t bytes) = 0;  // at most `bytes`
  virtual void send(int destination, int tag, const void* data, std::size_t bytes) = 0;
  // Waits for all transfers.
  virtual Outcome wait(const TimeLimit& limit) = 0;
};

class PairwiseTransport : public Transport {
 public:
  PairwiseTransport(int rank, int size);

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                std::span<MutableBlock> from, const TimeLimit& limit) final;
  std::size_t capacity(int channel) const final;
  std::shared_ptr<std::byte> shared_memory(std::size_t, const TimeLimit&) final { return nullptr; }

 protected:
  // Upper bound (exclusive) of the tags of exchanges.
  static constexpr int kTags = 2 * kChannels;

  virtual std::unique_ptr<Transfers> begin_transfers(int channel) = 0;
  // Throws the reason why the transfers failed.
  [[noreturn]] virtual void give_up(const Transfers::Outcome& outcome, const TimeLimit& limit) = 0;
  [[noreturn]] void give_up(const RankFailure& failure);

 private:
  // Blocks of up to this many bytes are sent with the header.
  static constexpr std::size_t kInline = 4096;
  struct Opening {
    CollectiveHeader header;
    std::byte block[kInline];
  };
  // Memory that a channel's exchanges reuse.
  struct Scratch {
    std::vector<Opening> sent, received;
    std::vector<std::vector<std::byte>> blocks;
  };

  template <typename Visit>
  void for_each_peer(const Visit& visit) const;
  void open(int channel, const CollectiveHeader& header, std::span<const ConstBlock> to, std::span<MutableBlock> from,
            const TimeLimit& limit);
  void finish(Transfers& transfers, const TimeLimit& limit);

  const int rank_, size_;
  std::array<Scratch, kChannels> scratch_;
};

}  // namespace lockstep
