// Streams and events: a stream is a thread that runs what is queued, in order.
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
  // Runs what is queued first.
  ~Stream();

  // Or takes it down, while it is captured.
  void enqueue(std::function<void()> work);
  bool idle();
  void synchronize();
  int device() const { return device_; }
  int priority() const { return priority_; }

  // Where it is in a capture; null: in none. For the one thread that captures.
  const CapturedPlace* place() const { return place_ ? &*place_ : nullptr; }
  void join(const CapturedPlace& place);
  void leave() { place_.reset(); }
  // False, and the capture is lost, while there is one: for calls that wait.
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

// The handle of an event is a pointer to a shared pointer to this: streams may still wait for a destroyed one.
class Event {
 public:
  using Clock = std::chrono::steady_clock;

  Event(int device, unsigned flags) : device_(device), flags_(flags) {}
  int device() const { return device_; }
  // The number of this record; wait() takes it. An event never recorded is at 0, which has happened.
  std::uint64_t record();
  std::uint64_t recorded();
  void happen(std::uint64_t record);
  void wait(std::uint64_t record);
  bool happened();
  bool timed() const { return !(flags_ & cudaEventDisableTiming); }
  Clock::time_point time();

  // Where it was recorded, if that was in a capture.
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

// The stream behind a handle; null and the legacy handles are the device's own. Null for what is no stream.
Stream* find_stream(cudaStream_t handle);
Stream* create_stream(int device, int priority);
bool destroy_stream(cudaStream_t handle);
void synchronize_device(int device);

int device_count();
// The calling thread's. Asked for by whatever makes a device's context on a GPU, and counted as that.
int current_device();
bool has_context(int device);
// For the next test.
void forget_contexts();

// The error that the calling thread asks for with cudaGetLastError.
cudaError_t set_last_error(cudaError_t error);
// A device that has failed fails all that follows, as GPUs do; cudaSuccess makes it whole again, for the next test.
void fail_device(int device, cudaError_t error);
cudaError_t device_error(int device);

}  // namespace cuda_emulator
