// Moves blocks between the memories of ranks' GPUs, one for each rank: NCCL. It never sums.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/transport.h"
#include "lockstep/device/stream.h"

namespace lockstep {

// Called again and again by the thread that waits; throws when there is nothing to wait for any more.
using WaitCheck = std::function<void()>;

// The links throw it, perhaps only because another rank has failed.
class DeviceLinksError : public Error {
 public:
  using Error::Error;
};

// One thread at a time.
class DeviceLinks {
 public:
  struct Piece {
    int rank;
    std::byte* data;
    std::size_t bytes;
  };

  virtual ~DeviceLinks() = default;
  // Queues the pieces on the stream, all at once. The k-th piece that goes to a rank is the k-th that it gets from
  // here, and as long.
  virtual void exchange(std::span<const Piece> sent, std::span<const Piece> received, Stream& stream,
                        const WaitCheck& wait_check) = 0;
  // Throws what has gone wrong with what was queued.
  virtual void check() = 0;
  // Ends all that is queued and not over, with any result; the links are of no further use. Waits for no other rank.
  virtual void abort() noexcept = 0;
};

struct NcclInfo {
  int version = 0;  // 22809 is 2.28.9; 0: there is none
  std::string why_none;
};

// Never throws. Loads the library.
NcclInfo find_nccl();

// A collective: between the GPUs that the ranks' streams belong to, none of which may belong to two ranks.
std::unique_ptr<DeviceLinks> make_nccl_links(Transport& transport, int channel, Stream& stream, const WaitCheck& wait_check,
                                             const TimeLimit& limit);

}  // namespace lockstep
