#include "lockstep/comm/link_traffic.h"

#include <utility>

namespace lockstep {
namespace {

class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, std::shared_ptr<LinkCounters> counters)
      : inner_(std::move(inner)), counters_(std::move(counters)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                std::span<MutableBlock> from, const TimeLimit& limit) override {
    const auto begin = std::chrono::steady_clock::now();
    inner_->exchange(channel, header, to, from, limit);
    counters_->exchanged(std::chrono::steady_clock::now() - begin);
    const auto self = static_cast<std::size_t>(rank());
    for (std::size_t r = 0; r < to.size(); ++r) {
      if (r != self && to[r].bytes > 0) counters_->sent(r, to[r].bytes);
    }
  }
  std::size_t capacity(int channel) const override { return inner_->capacity(channel); }

  void send(int destination, int tag, Message message, const TimeLimit& limit) override {
    const std::size_t bytes = message.bytes.size();
    inner_->send(destination, tag, std::move(message), limit);
    counters_->sent(static_cast<std::size_t>(destination), bytes);
  }
  Message receive(int source, int tag, const TimeLimit& limit) override { return inner_->receive(source, tag, limit); }

  std::shared_ptr<std::byte> shared_memory(std::size_t bytes, const TimeLimit& limit) override {
    return inner_->shared_memory(bytes, limit);
  }
  std::unique_ptr<Transport> subgroup(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) override {
    return inner_->subgroup(ranks, name, timeout);
  }

  void fail(const RankFailure& failure) override { inner_->fail(failure); }
  std::optional<RankFailure> failure() const override { return inner_->failure(); }
  bool may_spin() const override { return inner_->may_spin(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::shared_ptr<LinkCounters> counters_;
};

}  // namespace

LinkTraffic LinkCounters::read() const {
  LinkTraffic traffic{.exchanging = std::chrono::nanoseconds(exchanging_ns_.load(std::memory_order_relaxed))};
  for (const auto& bytes : sent_) traffic.sent_bytes.push_back(bytes.load(std::memory_order_relaxed));
  return traffic;
}

std::unique_ptr<Transport> counting_transport(std::unique_ptr<Transport> transport,
                                              std::shared_ptr<LinkCounters> counters) {
  return std::make_unique<CountingTransport>(std::move(transport), std::move(counters));
}

}  // namespace lockstep
