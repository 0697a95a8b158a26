// A CUDA stream that implements the engine's Stream. Its tickets are CUDA events.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/device/cuda/error_slot.h"
#include "lockstep/device/stream.h"

namespace lockstep {

class CudaStream final : public Stream {
 public:
  using Event = std::shared_ptr<CUevent_st>;

  // Work on an urgent stream has priority.
  CudaStream(int gpu, bool urgent);
  ~CudaStream() override;

  cudaStream_t handle() const { return stream_; }
  int gpu() const { return gpu_; }
  // Slot for data errors of the kernels queued before the next record(). The address is in the GPU's address space.
  ErrorSlot* errors() const { return gpu_slots_ + (recorded_ + 1) % kSlots; }

  std::uint64_t record(bool timed) override;
  void wait(Stream& other, std::uint64_t ticket) override;
  std::uint64_t finished() override;
  void synchronize(std::uint64_t ticket) noexcept override;
  TimeSpan times_of(std::uint64_t begin, std::uint64_t end) override;

  // Work queued until end_capture() becomes part of a graph. No other code may use the stream. If `timed`, record(true)
  // adds a time to the graph.
  void begin_capture(bool timed);
  // Ends the capture and returns the events of its times.
  std::vector<Event> end_capture();

  // A time that a graph records at each launch.
  struct GraphTime {
    CudaStream* clock;  // the stream on which it was captured
    Event event;
  };
  // Call it after launching a graph that was captured on `streams`: data errors of the graph's kernels become errors of
  // this stream. Returns the ticket of the first of `times`; 0 if there are none.
  std::uint64_t record_graph(std::vector<std::shared_ptr<CudaStream>> streams, std::span<const GraphTime> times);

 private:
  // Tickets this far apart share a slot: while both are in flight, an error of the later one may be reported for the
  // earlier one.
  static constexpr std::uint64_t kSlots = 256;
  class EventPool;

  struct Mark {
    std::uint64_t ticket;
    Event event;
    bool timed;
    cudaError_t status = cudaSuccess;                        // status of recording the event
    CudaStream* clock = nullptr;                             // the stream that captured the event; null outside graphs
    std::vector<std::shared_ptr<CudaStream>> captured = {};  // the streams of a graph that ends here
  };
  // An event and the stream whose base its time refers to: for a graph's event, the stream that captured it.
  struct Time {
    CudaStream* clock;
    Event event;
  };
  // Returns nothing if the work was recorded on a lost GPU.
  std::optional<Time> take_time(std::uint64_t ticket);

  // An event and the host time at about the same moment; the two are closest on an idle stream.
  struct Base {
    Event event;
    std::int64_t ns = 0;
  };
  Base make_base();
  void set_base();

  // Returns no event for finished work.
  Event event_of(std::uint64_t ticket);
  // Throws errors that kernels have reported up to the mark.
  void take_data_errors(const Mark& mark);
  // Returns an empty string if the slot has no error.
  std::string take_data_error(std::size_t slot);
  // Call both with the mutex of the clock's stream held. `ns`: the event's time.
  std::int64_t time_of(const Event& event);
  void move_base_near(const Event& event, std::int64_t ns);

  const int gpu_;
  const bool synchronous_;
  cudaStream_t stream_ = nullptr;
  ErrorSlot* slots_ = nullptr;
  ErrorSlot* gpu_slots_ = nullptr;
  std::shared_ptr<EventPool> untimed_, timed_;
  std::uint64_t recorded_ = 0;  // written by the queueing thread alone

  std::mutex mutex_;
  std::deque<Mark> marks_;               // marks whose work may still run
  std::map<std::uint64_t, Time> times_;  // times of finished work, until times_of takes them
  std::uint64_t finished_ = 0;
  // Moves near the requested times, because CUDA returns time differences as floats.
  Base base_;

  bool capturing_ = false;
  std::vector<Event> captured_times_;
};

}  // namespace lockstep
