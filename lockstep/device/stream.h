// A queue of a device's work that runs beside the threads that fill it, in order: a CUDA stream.
//
// What is over is told by tickets: record() marks the end of what has been queued so far, and gives the mark a number.
// The engine (LaneOptions::stream) records one behind each task, and remembers who used which data by ticket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// The device has failed, or a kernel has found data that it cannot use: nothing queued behind ticket() - 1 is to be
// trusted.
class StreamError : public Error {
 public:
  // `ticket`: the first one whose work is lost, as exactly as the stream can tell: what it says was good, was good.
  StreamError(const std::string& what, std::uint64_t ticket) : Error(what), ticket_(ticket) {}
  std::uint64_t ticket() const { return ticket_; }

 private:
  std::uint64_t ticket_;
};

// record() and wait() are called by the one thread that queues, all else by any thread at any time. The destructor lets
// the device finish what was queued.
class Stream {
 public:
  virtual ~Stream() = default;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Marks the end of the work queued so far. Tickets are 1, 2, 3 and so on. `timed`: time_of will be asked for it.
  virtual std::uint64_t record(bool timed = false) = 0;
  // What is queued from now on waits until other's work up to a recorded ticket is over; the caller does not wait,
  // unless `other` is of a kind that this device cannot wait for (then: other.synchronize(ticket)). A failure of
  // `other` is not a failure of this stream: whoever waits for it ends waiting.
  virtual void wait(Stream& other, std::uint64_t ticket) = 0;

  // The last ticket whose work is over; 0: none yet. Does not wait. Throws StreamError when the device has failed: once
  // for a failure that it can go on after, every time when it is lost for good.
  virtual std::uint64_t finished() = 0;
  // The caller waits until the work up to a recorded ticket is over, well or not.
  virtual void synchronize(std::uint64_t ticket) noexcept = 0;
  // When the work up to a timed ticket was over: nanoseconds of std::chrono::steady_clock. At most once for each, and
  // only for tickets that finished() has reached.
  virtual std::int64_t time_of(std::uint64_t ticket) = 0;
};

// Work that was captured once and that a device repeats as one piece: a CUDA graph.
class StreamGraph {
 public:
  virtual ~StreamGraph() = default;
  // Queues it on a stream of the device that it begins on, by the thread that queues there. Until that is over the graph is
  // not to be launched again on another stream. Where its parts were timed while they were captured: the stream's ticket of
  // the first time, which those of the others follow; else 0.
  virtual std::uint64_t launch(Stream& stream) = 0;
};

// Takes down what is queued on its own streams, instead of doing it. All calls by one thread.
class StreamCapture {
 public:
  virtual ~StreamCapture() = default;
  // Before begin(). The graph begins on the first one.
  virtual std::shared_ptr<Stream> add_stream(int device) = 0;
  // From here to end() streams take record() and wait() for one another, and nothing that waits. `record(true)` makes a
  // time of the graph.
  virtual void begin() = 0;
  virtual std::shared_ptr<StreamGraph> end() = 0;
};

}  // namespace lockstep
