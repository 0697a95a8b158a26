#include "tests/cuda_emulator/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/device_memory.h"

namespace cuda_emulator {
namespace {

constexpr int kMostDevices = 16;

struct Streams {
  std::mutex mutex;
  // Shared with threads that wait for a stream while another thread destroys it.
  std::map<Stream*, std::shared_ptr<Stream>> all;
  std::array<std::shared_ptr<Stream>, kMostDevices> of_devices;
  std::array<std::atomic<cudaError_t>, kMostDevices> errors{};
};

Streams& streams() {
  static Streams& streams = *new Streams;  // never destroyed, because a program may end while streams work
  return streams;
}

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

Stream::Stream(int device, int priority) : device_(device), priority_(priority), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::join(const CapturedPlace& place) {
  if (!place_) {
    place_ = CapturedPlace{place.capture, {}};
    place.capture->streams.push_back(this);
  }
  place_->after.insert(place.after.begin(), place.after.end());
}

bool Stream::may_wait() {
  if (place_) place_->capture->invalid = true;
  return !place_;
}

void Stream::enqueue(std::function<void()> work) {
  if (place_) {
    std::vector<Graph::Node>& nodes = place_->capture->graph.nodes;
    const std::set<std::size_t> itself{nodes.size()};
    nodes.push_back({std::move(work), std::exchange(place_->after, itself)});
    return;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Stream::run() {
  DeviceAccess access;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

std::uint64_t Event::record() {
  std::lock_guard lock(mutex_);
  return ++recorded_;
}

std::uint64_t Event::recorded() {
  std::lock_guard lock(mutex_);
  return recorded_;
}

void Event::happen(std::uint64_t record) {
  {
    std::lock_guard lock(mutex_);
    happened_ = std::max(happened_, record);
    time_ = Clock::now();
  }
  changed_.notify_all();
}

void Event::wait(std::uint64_t record) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return happened_ >= record; });
}

bool Event::happened() {
  std::lock_guard lock(mutex_);
  return happened_ >= recorded_;
}

Event::Clock::time_point Event::time() {
  std::lock_guard lock(mutex_);
  return time_;
}

Stream* find_stream(cudaStream_t handle) {
  current_device();
  Streams& s = streams();
  std::lock_guard lock(s.mutex);
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    auto& own = s.of_devices[current_device()];
    if (!own) own = std::make_shared<Stream>(current_device(), 0);
    return own.get();
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  return s.all.contains(stream) ? stream : nullptr;
}

Stream* create_stream(int device, int priority) {
  auto stream = std::make_shared<Stream>(device, priority);
  std::lock_guard lock(streams().mutex);
  return (streams().all[stream.get()] = stream).get();
}

bool destroy_stream(cudaStream_t handle) {
  std::shared_ptr<Stream> stream;  // destroyed after the lock
  std::lock_guard lock(streams().mutex);
  const auto found = streams().all.find(reinterpret_cast<Stream*>(handle));
  if (found == streams().all.end()) return false;
  stream = std::move(found->second);
  streams().all.erase(found);
  return true;
}

void synchronize_device(int device) {
  Streams& s = streams();
  std::vector<std::shared_ptr<Stream>> all;
  {
    std::lock_guard lock(s.mutex);
    for (const auto& [handle, stream] : s.all) all.push_back(stream);
    if (s.of_devices[device]) all.push_back(s.of_devices[device]);
  }
  for (const auto& stream : all) {
    if (stream->device() == device) stream->synchronize();
  }
}

int device_count() {
  static const int count = [] {
    const char* set = std::getenv("LOCKSTEP_EMULATED_GPUS");
    return set ? std::clamp(std::atoi(set), 0, kMostDevices) : 1;
  }();
  return count;
}

cudaError_t set_last_error(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void fail_device(int device, cudaError_t error) { streams().errors[device] = error; }

cudaError_t device_error(int device) { return streams().errors[device]; }

}  // namespace cuda_emulator

extern "C" cudaError_t cudaGetLastError() {
  using namespace cuda_emulator;
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  int device = 0;
  cudaGetDevice(&device);
  return error == cudaSuccess && device_count() > 0 ? device_error(device) : error;
}

extern "C" cudaError_t cudaPeekAtLastError() { return cuda_emulator::last_error; }
