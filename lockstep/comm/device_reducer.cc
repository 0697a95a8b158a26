#include "lockstep/comm/device_reducer.h"

#include <chrono>
#include <thread>
#include <vector>

#include "lockstep/comm/exchanges.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// Parts of arrays begin at multiples of this many elements: whole vectors for kernels, whole packets for NCCL.
constexpr std::size_t kStep = 128;
// Extra time for the last exchange. A rank whose GPU timed out joins it, too, so a rank that does not join is lost.
constexpr milliseconds kGrace{500};
// Time to wait for the transport's report after NCCL has failed: NCCL may notice first that a rank is gone, but only
// the transport knows which rank.
constexpr milliseconds kReportTime{1000};

// Returns a check that throws the transport's failure, or an error if the time is over.
WaitCheck wait_check_of(Transport& transport, const TimeLimit& limit) {
  return [&transport, limit] {
    if (auto failure = transport.failure()) throw_rank_failure(*failure);
    if (limit.over())
      throw_rank_failure({-1, fmt::format("NCCL did not connect the ranks' GPUs within {}", limit.str())});
  };
}

// Throws the failure that the transport reports after NCCL has failed; returns if there is none in time.
void throw_reported_failure(const Transport& transport) {
  for (const TimeLimit limit(kReportTime); !limit.over(); std::this_thread::sleep_for(milliseconds(1))) {
    if (auto failure = transport.failure()) throw_rank_failure(*failure);
  }
}

// Works like the SendingReducer of tree_reducer.cc: each rank sums one part of the elements over all positions and
// sends the sum to all ranks. The data lie in the GPU's memory; the host knows which segments are present.
class DeviceReducer final : public TreeReducer {
 public:
  DeviceReducer(Transport& transport, int channel, IndexedLayout layout, CollectiveRunner run,
                std::shared_ptr<SummingDevice> device, std::shared_ptr<DeviceLinks> links, milliseconds timeout)
      : transport_(transport), channel_(channel), rank_(static_cast<std::size_t>(transport.rank())),
        size_(static_cast<std::size_t>(transport.size())), layout_(std::move(layout)), run_(std::move(run)),
        device_(std::move(device)), links_(std::move(links)), timeout_(timeout) {
    present_.assign(layout_.leaves(), std::vector<std::uint8_t>(layout_.segments()));
    const std::size_t own = own_positions().size(), item = layout_.item(), elements = layout_.elements();
    flags_.resize(own * layout_.segments());
    const std::size_t others = layout_.leaves() - own;  // upper bound: some positions may have no owner
    const std::size_t array = padded(elements * item), part = padded((bound(rank_ + 1) - bound(rank_)) * item);
    const std::size_t result = padded(elements * sizeof(float));
    const bool rounded = layout_.dtype() == DType::bf16;
    memory_ = device_->allocate(own * array + result + (rounded ? array : 0) + others * part + 1);
    std::byte* next = memory_.get();
    const auto take = [&](std::size_t bytes) { return std::exchange(next, next + bytes); };
    leaves_.assign(layout_.leaves(), nullptr);
    for (std::size_t k = 0; k < own; ++k) arrays_.push_back(take(array));
    result_ = take(result);
    totals_ = rounded ? take(array) : result_;
    for_each_peer([&](std::size_t r) {
      for (int p : layout_.positions(static_cast<int>(r))) leaves_[static_cast<std::size_t>(p)] = take(part);
    });
    for (std::size_t k = 0; k < own; ++k) {
      leaves_[static_cast<std::size_t>(own_positions()[k])] = arrays_[k] + bound(rank_) * item;
    }
  }

  CommBuffer contribution(std::size_t k) override { return {arrays_[k], layout_.elements(), layout_.dtype()}; }
  void set_present(std::size_t k, std::size_t segment, bool present) override {
    flags_[k * layout_.segments() + segment] = present;
  }
  std::span<const float> result() const override {
    return {reinterpret_cast<const float*>(result_), layout_.elements()};
  }
  bool result_present(std::size_t segment) const override {
    return std::any_of(present_.begin(), present_.end(), [&](const auto& flags) { return flags[segment] != 0; });
  }

  void reduce(const CollectiveOptions& options) override {
    run_(options, [this](const CollectiveHeader& header, const TimeLimit& limit) { sum(header, limit); });
  }

 private:
  void sum(const CollectiveHeader& header, const TimeLimit& limit) {
    exchange_presence(header, limit);  // now all contributions are ready, so GPUs do not wait long
    const TimeLimit soon(timeout_);
    bool in_time = false;
    try {
      const WaitCheck wait_check = wait_check_of(transport_, soon);
      queue(wait_check);
      in_time = wait(soon);
    } catch (const DeviceLinksError&) {
      free_stream();
      throw_reported_failure(transport_);
      throw;
    } catch (...) {
      free_stream();
      throw;
    }
    if (!in_time) free_stream();
    TimeLimit last = limit;
    last.extend(std::max(soon.left() - limit.left(), TimeLimit::Clock::duration::zero()) + kGrace);
    Exchanges(transport_, channel_, header, last).exchange();
    if (!in_time)
      throw_rank_failure({-1, fmt::format("the GPUs did not exchange their gradients within {}", soon.str())});
  }

  static std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  const std::vector<int>& own_positions() const { return layout_.positions(transport_.rank()); }
  std::size_t bound(std::size_t r) const {
    return r == size_ ? layout_.elements() : layout_.elements() * r / size_ / kStep * kStep;
  }
  template <typename Visit>
  void for_each_peer(const Visit& visit) const {
    for (std::size_t i = 1; i < size_; ++i) visit((rank_ + i) % size_);
  }

  void exchange_presence(const CollectiveHeader& header, const TimeLimit& limit) {
    Exchanges e(transport_, channel_, header, limit);
    std::vector<std::vector<std::uint8_t>> flags(size_);
    std::size_t longest = 0;
    for (std::size_t r = 0; r < size_; ++r) {
      flags[r].resize(layout_.positions(static_cast<int>(r)).size() * layout_.segments());
      longest = std::max(longest, flags[r].size());
    }
    flags[rank_] = flags_;
    e.in_steps(longest, 1, [&](std::size_t begin, std::size_t length) {
      // Ranks with fewer positions have less to send.
      const auto part = [&](std::size_t r) {
        return std::min(length, flags[r].size() - std::min(begin, flags[r].size()));
      };
      if (part(rank_) > 0) e.to_all(reinterpret_cast<const std::byte*>(flags_.data() + begin), part(rank_));
      for (std::size_t r = 0; r < size_; ++r) {
        e.from[r] = {part(r) > 0 ? reinterpret_cast<std::byte*>(flags[r].data() + begin) : nullptr, part(r)};
      }
      e.exchange();
    });
    for (std::size_t r = 0; r < size_; ++r) {
      auto from = flags[r].cbegin();
      for (int p : layout_.positions(static_cast<int>(r))) {
        std::copy_n(from, layout_.segments(), present_[static_cast<std::size_t>(p)].begin());
        from += static_cast<std::ptrdiff_t>(layout_.segments());
      }
    }
  }

  void queue(const WaitCheck& wait_check) {
    const std::size_t item = layout_.item(), own = bound(rank_), own_bytes = (bound(rank_ + 1) - own) * item;
    std::vector<DeviceLinks::Piece> sent, received;
    const auto add = [](auto& pieces, std::size_t rank, std::byte* data, std::size_t bytes) {
      if (bytes > 0) pieces.push_back({static_cast<int>(rank), data, bytes});
    };
    for_each_peer([&](std::size_t r) {
      for (std::byte* array : arrays_) add(sent, r, array + bound(r) * item, (bound(r + 1) - bound(r)) * item);
      for (int p : layout_.positions(static_cast<int>(r))) {
        add(received, r, leaves_[static_cast<std::size_t>(p)], own_bytes);
      }
    });
    move(sent, received, wait_check);
    sum_own_part();
    sent.clear();
    received.clear();
    for_each_peer([&](std::size_t r) {
      add(sent, r, totals_ + own * item, own_bytes);
      add(received, r, totals_ + bound(r) * item, (bound(r + 1) - bound(r)) * item);
    });
    move(sent, received, wait_check);
    if (totals_ != result_ && layout_.elements() > 0) device_->widen(totals_, result_, layout_.elements());
  }

  void move(const std::vector<DeviceLinks::Piece>& sent, const std::vector<DeviceLinks::Piece>& received,
            const WaitCheck& wait_check) {
    if (!sent.empty() || !received.empty()) links_->exchange(sent, received, device_->stream(), wait_check);
  }

  // Sums neighboring segments in one call if the same positions have them, which is the usual case.
  void sum_own_part() {
    std::size_t first = 0, begin = 0, length = 0;
    const auto flush = [&] {
      if (length == 0) return;
      std::byte* out = totals_ + begin * layout_.item();
      if (!result_present(first)) return device_->fill_with_zeros(layout_.dtype(), out, length);
      std::vector<std::byte*> leaves(leaves_.size(), nullptr);
      for (std::size_t p = 0; p < leaves.size(); ++p) {
        if (present_[p][first] != 0) leaves[p] = leaves_[p] + (begin - bound(rank_)) * layout_.item();
      }
      device_->sum(layout_.dtype(), leaves, out, length);
    };
    layout_.for_each_segment(bound(rank_), bound(rank_ + 1), [&](std::size_t s, std::size_t at, std::size_t n) {
      const bool alike = length > 0 && std::all_of(present_.begin(), present_.end(),
                                                   [&](const auto& flags) { return flags[s] == flags[first]; });
      if (alike) {
        length += n;
        return;
      }
      flush();
      first = s, begin = at, length = n;
    });
    flush();
  }

  // Waits for the queued work. Returns false if the time is over.
  bool wait(const TimeLimit& limit) {
    Stream& stream = device_->stream();
    const std::uint64_t ticket = stream.record();
    const auto over = [&] { return stream.finished() >= ticket; };
    const auto soon = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
    while (std::chrono::steady_clock::now() < soon) {
      if (over()) return true;
      std::this_thread::yield();
    }
    while (!over()) {
      if (auto failure = transport_.failure()) throw_rank_failure(*failure);
      if (limit.over()) return false;
      links_->check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

  // Returns when no work touches the memory any more.
  void free_stream() noexcept {
    links_->abort();
    try {
      device_->stream().synchronize(device_->stream().record());
    } catch (const std::exception&) {
      // A failed GPU does not touch the memory, either.
    }
  }

  Transport& transport_;
  const int channel_;
  const std::size_t rank_, size_;
  IndexedLayout layout_;
  CollectiveRunner run_;
  std::shared_ptr<SummingDevice> device_;
  std::shared_ptr<DeviceLinks> links_;
  const milliseconds timeout_;
  std::vector<std::uint8_t> flags_;                 // whether each segment of each own position is present
  std::vector<std::vector<std::uint8_t>> present_;  // the same for all positions of all ranks
  std::shared_ptr<std::byte> memory_;               // holds the following arrays:
  std::vector<std::byte*> arrays_;                  // of own positions
  std::vector<std::byte*> leaves_;                  // this rank's part of each position's array; null if no rank has it
  std::byte* totals_ = nullptr;                     // sums in the layout's type
  std::byte* result_ = nullptr;
};

}  // namespace

std::shared_ptr<DeviceLinks> link_gpus(Transport& transport, int channel, Stream& stream, const TimeLimit& limit) {
  try {
    return make_nccl_links(transport, channel, stream, wait_check_of(transport, limit), limit);
  } catch (const DeviceLinksError&) {
    throw_reported_failure(transport);
    throw;
  }
}

std::unique_ptr<TreeReducer> make_device_reducer(Transport& transport, int channel, IndexedLayout layout,
                                                 CollectiveRunner run, std::shared_ptr<SummingDevice> device,
                                                 std::shared_ptr<DeviceLinks> links, milliseconds timeout) {
  return std::make_unique<DeviceReducer>(transport, channel, std::move(layout), std::move(run), std::move(device),
                                         std::move(links), timeout);
}

}  // namespace lockstep
