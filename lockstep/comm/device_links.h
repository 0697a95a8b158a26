// Internal: moves blocks between the memories of the ranks' GPUs, one GPU for each rank, by NCCL. It never sums.
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

// A callback that a waiting thread polls. It throws when waiting is pointless.
using WaitCheck = std::function<void()>;

// An error of the links, possibly because another rank failed.
class DeviceLinksError : public Error {
 public:
  using Error::Error;
};

// Moves blocks. One thread at a time may use it.
class DeviceLinks {
 public:
  struct Piece {
    int rank;
    std::byte* data;
    std::size_t bytes;
  };

  virtual ~DeviceLinks() = default;
  // Queues all pieces on the stream at once. The k-th piece that a rank sends to another is the k-th piece that the
  // other receives from it, with the same length.
  virtual void exchange(std::span<const Piece> sent, std::span<const Piece> received, Stream& stream,
                        const WaitCheck& wait_check) = 0;
  // Throws if queued work has failed.
  virtual void check() = 0;
  // Ends unfinished work, with undefined results. The links are unusable afterwards. Does not wait for other ranks.
  virtual void abort() noexcept = 0;
};

struct NcclInfo {
  int version = 0;  // 22809 is 2.28.9; 0 without NCCL
  std::string why_none;
};

// Loads the library. Returns the reason instead of throwing if that fails.
NcclInfo find_nccl();

// A collective. Connects the GPUs of the ranks' streams. No two ranks may share a GPU.
std::unique_ptr<DeviceLinks> make_nccl_links(Transport& transport, int channel, Stream& stream,
                                             const WaitCheck& wait_check, const TimeLimit& limit);

}  // namespace lockstep
