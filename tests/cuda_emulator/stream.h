// Streams and events. A stream is a thread that runs queued work in order.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/cuda_emulator/graph.h"

namespace cuda_emulator {

// The handle of a stream is a pointer to this.
class Stream {
 public:
  Stream(int device, int priority);
  // Runs the queued work first.
  ~Stream();

  // Queues work, or records it during a capture.
  void enqueue(std::function<void()> work);
  bool idle();
  void synchronize();
  int device() const { return device_; }
  int priority() const { return priority_; }

  // The stream's place in a capture; null if there is none. Only the capturing thread calls it.
  const CapturedPlace* place() const { return place_ ? &*place_ : nullptr; }
  void join(const CapturedPlace& place);
  void leave() { place_.reset(); }
  // Call it in functions that wait. During a capture, returns false and invalidates the capture.
  bool may_wait();

 private:
  void run();
  std::optional<CapturedPlace> place_;

  const int device_, priority_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

// The handle of an event is a pointer to a shared pointer to this, because streams may still wait for a destroyed
// event.
class Event {
 public:
  using Clock = std::chrono::steady_clock;

  Event(int device, unsigned flags) : device_(device), flags_(flags) {}
  int device() const { return device_; }
  // Returns the number of this record, for wait(). An event that was never recorded is at 0, which counts as happened.
  std::uint64_t record();
  std::uint64_t recorded();
  void happen(std::uint64_t record);
  void wait(std::uint64_t record);
  bool happened();
  bool timed() const { return !(flags_ & cudaEventDisableTiming); }
  Clock::time_point time();

  // Where it was recorded, if in a capture.
  std::optional<CapturedPlace> captured;

 private:
  const int device_;
  const unsigned flags_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t recorded_ = 0, happened_ = 0;
  Clock::time_point time_;
};

using EventPointer = std::shared_ptr<Event>;

// The stream of a handle. Null and the legacy handles mean the device's default stream. Returns null for an invalid
// handle.
Stream* find_stream(cudaStream_t handle);
Stream* create_stream(int device, int priority);
bool destroy_stream(cudaStream_t handle);
void synchronize_device(int device);

int device_count();
// The calling thread's device. Every function that would create a context on a GPU calls it, and the call counts as
// creating one.
int current_device();
bool has_context(int device);
// Resets the contexts for the next test.
void forget_contexts();
// Whether CUDA was called before this process was forked: then its calls fail.
bool forked();
// Whether kernels of a device may access memory of another: its own, and that of peers it was given access to.
bool reaches(int device, int owner);
// Takes all access to peers away, for the next test.
void forget_peers();
// Whether the device's generation can run the project's kernels, which are compiled for sm_80 and later.
bool runs_kernels(int device);

// Sets the error that cudaGetLastError returns to the calling thread.
cudaError_t set_last_error(cudaError_t error);
// Makes a device fail all later work, as GPUs do. cudaSuccess restores it for the next test.
void fail_device(int device, cudaError_t error);
cudaError_t device_error(int device);

}  // namespace cuda_emulator
