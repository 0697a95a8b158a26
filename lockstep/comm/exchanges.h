// Internal: a collective on one rank as a series of exchanges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lockstep/comm/transport.h"

namespace lockstep {

// The first exchange carries the header.
class Exchanges {
 public:
  Exchanges(Transport& transport, int channel, const CollectiveHeader& header, const TimeLimit& limit)
      : rank(static_cast<std::size_t>(transport.rank())), size(static_cast<std::size_t>(transport.size())), to(size),
        from(size), transport_(transport), channel_(channel), header_(&header), limit_(limit) {}

  // Sends the blocks in `to`, receives those in `from`, and clears `to`.
  void exchange() {
    transport_.exchange(channel_, header_, to, from, limit_);
    header_ = nullptr;
    std::fill(to.begin(), to.end(), ConstBlock{});
  }

  void to_all(const std::byte* data, std::size_t bytes) { std::fill(to.begin(), to.end(), ConstBlock{data, bytes}); }

  // Calls step(begin, length) for consecutive runs that cover `count` elements, each short enough for one exchange.
  // Calls step(0, 0) once if there are no elements.
  template <typename Step>
  void in_steps(std::size_t count, std::size_t item, const Step& step) {
    const std::size_t longest = std::max<std::size_t>(1, transport_.capacity(channel_) / item);
    std::size_t begin = 0;
    do {
      const std::size_t length = std::min(longest, count - begin);
      step(begin, length);
      begin += length;
    } while (begin < count);
  }

  const std::size_t rank, size;
  std::vector<ConstBlock> to;
  std::vector<MutableBlock> from;

 private:
  Transport& transport_;
  int channel_;
  const CollectiveHeader* header_;
  const TimeLimit& limit_;
};

}  // namespace lockstep
