// A CUDA stream as the engine's Stream: tickets are events.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/device/cuda/error_slot.h"
#include "lockstep/device/stream.h"

namespace lockstep {

class CudaStream final : public Stream {
 public:
  using Event = std::shared_ptr<CUevent_st>;

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

  // What is queued from here to end_capture() becomes part of a graph; nobody else knows the stream. `timed`: with the times
  // of record(true).
  void begin_capture(bool timed);
  // The events of these times.
  std::vector<Event> end_capture();

  // A time that a graph on this stream takes each time it is launched.
  struct GraphTime {
    CudaStream* clock;  // the stream that it was captured on
    Event event;
  };
  // Behind the launch of a graph that was captured on `streams`: the errors that its kernels report become this stream's.
  // Returns the ticket of the first of `times`; 0 where there are none.
  std::uint64_t record_graph(std::vector<std::shared_ptr<CudaStream>> streams, std::span<const GraphTime> times);

 private:
  // Tickets that far apart share a slot, and an error of the later one may be told of the earlier.
  static constexpr std::uint64_t kSlots = 256;
  class EventPool;

  struct Mark {
    std::uint64_t ticket;
    Event event;
    bool timed;
    cudaError_t status = cudaSuccess;  // of recording it
    CudaStream* clock = nullptr;       // of an event that a graph records
    std::vector<std::shared_ptr<CudaStream>> captured = {};  // whose work is over
  };
  struct Time {
    CudaStream* clock;
    Event event;
  };

  // A time of both clocks, near to each other. Where nothing is queued it is exact.
  struct Base {
    Event event;
    std::int64_t ns = 0;
  };
  Base make_base();
  void set_base();

  // None for work that is over.
  Event event_of(std::uint64_t ticket);
  // Throws what kernels have reported up to the mark.
  void take_data_errors(const Mark& mark);
  // Empty if there is none.
  std::string take_data_error(std::size_t slot);
  // Nanoseconds of the event, by this stream's base. With the lock.
  std::int64_t time_of(const Event& event);

  const int gpu_;
  const bool synchronous_;
  cudaStream_t stream_ = nullptr;
  ErrorSlot* slots_ = nullptr;
  ErrorSlot* gpu_slots_ = nullptr;
  std::shared_ptr<EventPool> untimed_, timed_;
  std::uint64_t recorded_ = 0;  // of the thread that queues

  std::mutex mutex_;
  std::deque<Mark> marks_;               // not known to be over
  std::map<std::uint64_t, Time> times_;   // over, until time_of
  std::uint64_t finished_ = 0;
  // Near to the times that are asked for: CUDA gives differences, in floats.
  Base base_;

  bool capturing_ = false;
  std::vector<Event> captured_times_;
};

}  // namespace lockstep
