// Internal: a queue of device work that runs in order and asynchronously to the threads that fill it, like a CUDA
// stream.
//
// Tickets tell which work is complete: record() marks the end of the work queued so far and numbers the mark. The
// engine (LaneOptions::stream) records a ticket after each task and remembers the users of data by ticket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// The device has failed, or a kernel has found invalid data.
class StreamError : public Error {
 public:
  // Which work is lost, in addition to the work that reads its results.
  enum class Lost {
    from_ticket,  // all work from ticket() on: the device has failed, or cannot tell the ticket exactly
    ticket,       // the work of this ticket: a kernel has found invalid data
  };
  // `ticket`: the first ticket whose work is lost, as exactly as the stream can tell. Work of earlier tickets is good.
  StreamError(const std::string& what, std::uint64_t ticket, Lost lost = Lost::from_ticket)
      : Error(what), ticket_(ticket), lost_(lost) {}
  std::uint64_t ticket() const { return ticket_; }
  Lost lost() const { return lost_; }

 private:
  std::uint64_t ticket_;
  Lost lost_;
};

// Times in nanoseconds of std::chrono::steady_clock.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Only the thread that queues work may call record() and wait(); any thread may call the other functions at any time.
// The destructor lets the device finish the queued work.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Marks the end of the work queued so far. Tickets are 1, 2, 3, and so on. `timed`: a call of times_of will name it.
  virtual std::uint64_t record(bool timed = false) = 0;
  // Makes work that is queued from now on wait until the work of `other` up to a recorded ticket is over. The caller
  // does not wait, unless this device cannot wait for `other` (it then calls other.synchronize(ticket)). If `other`
  // fails, the wait ends, and this stream does not fail.
  virtual void wait(Stream& other, std::uint64_t ticket) = 0;

  // Returns the last ticket whose work is over; 0: none yet. Does not wait. Throws StreamError when the device has
  // failed: once for a failure that it can recover from, every time when it is lost for good.
  virtual std::uint64_t finished() = 0;
  // Waits until the work up to a recorded ticket is over, successful or not.
  virtual void synchronize(std::uint64_t ticket) noexcept = 0;
  // Returns the times at which the work up to two timed tickets was over. One clock measures both, so `begin_ns` is at
  // most `end_ns` if `begin` comes before `end`. Call it once per pair, when finished() has reached both.
  virtual TimeSpan times_of(std::uint64_t begin, std::uint64_t end) = 0;
};

// Captured work that a device repeats as one piece: a CUDA graph.
class StreamGraph {
 public:
  virtual ~StreamGraph() = default;
  // Queues the graph on a stream of the device on which it begins. Call it from the thread that queues work there, and
  // not again on another stream until this launch is over. If the capture was timed, returns the stream's ticket of the
  // first time, which the other times follow; otherwise 0.
  virtual std::uint64_t launch(Stream& stream) = 0;
};

// Records the work queued on its own streams instead of running it. All calls come from one thread.
class StreamCapture {
 public:
  virtual ~StreamCapture() = default;
  // Call it before begin(). The graph begins on the first stream.
  virtual std::shared_ptr<Stream> add_stream(int device) = 0;
  // Until end(), the streams accept record() and wait() for one another, but no call that makes the caller wait.
  // `record(true)` adds a time to the graph.
  virtual void begin() = 0;
  virtual std::shared_ptr<StreamGraph> end() = 0;
};

}  // namespace lockstep
