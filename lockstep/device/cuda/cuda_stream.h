// A CUDA stream as the engine's Stream: tickets are events.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/device/cuda/error_slot.h"
#include "lockstep/device/stream.h"

namespace lockstep {

class CudaStream final : public Stream {
 public:
  // Work of an urgent stream goes before that of others.
  CudaStream(int gpu, bool urgent);
  ~CudaStream() override;

  cudaStream_t handle() const { return stream_; }
  int gpu() const { return gpu_; }
  // Where kernels queued before the next record() report errors that data cause; in the GPU's address space.
  ErrorSlot* errors() const { return gpu_slots_ + (recorded_ + 1) % kSlots; }

  std::uint64_t record(bool timed) override;
  void wait(Stream& other, std::uint64_t ticket) override;
  std::uint64_t finished() override;
  void synchronize(std::uint64_t ticket) noexcept override;
  std::int64_t time_of(std::uint64_t ticket) override;

 private:
  // Tickets that far apart share a slot, and an error of the later one may be told of the earlier.
  static constexpr std::uint64_t kSlots = 256;
  using Event = std::shared_ptr<CUevent_st>;
  class EventPool;

  struct Mark {
    std::uint64_t ticket;
    Event event;
    bool timed;
    cudaError_t status = cudaSuccess;  // of recording it
  };

  void set_base();

  // None for work that is over.
  Event event_of(std::uint64_t ticket);
  void take_data_error(std::uint64_t ticket);

  const int gpu_;
  const bool synchronous_;
  cudaStream_t stream_ = nullptr;
  ErrorSlot* slots_ = nullptr;
  ErrorSlot* gpu_slots_ = nullptr;
  std::shared_ptr<EventPool> untimed_, timed_;
  std::uint64_t recorded_ = 0;  // of the thread that queues

  std::mutex mutex_;
  std::deque<Mark> marks_;               // not known to be over
  std::map<std::uint64_t, Event> times_;  // over, until time_of
  std::uint64_t finished_ = 0;
  // A time of both clocks, near to those that are asked for: CUDA gives differences, in floats.
  Event base_;
  std::int64_t base_ns_ = 0;
};

}  // namespace lockstep
