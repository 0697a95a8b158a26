#include "lockstep/device/cuda/cuda_stream.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

std::int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The same messages as those of the CPU kernels.
std::string describe(const ErrorSlot& slot, DataError error) {
  switch (error) {
    case DataError::label_out_of_range:
      return fmt::format("cross_entropy: label {} of sample {} is outside [0, {})", slot.value, slot.index, slot.end);
    case DataError::index_out_of_range:
      return fmt::format("index: {} at place {} is outside [0, {})", slot.value, slot.index, slot.end);
    case DataError::division_by_zero: return fmt::format("divide: element {} of the divisor is 0", slot.index);
    case DataError::none: break;
  }
  return "";
}

}  // namespace

// Reuses events: an event returns to the pool when its last handle is gone.
class CudaStream::EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool(int gpu, unsigned flags) : gpu_(gpu), flags_(flags) {}
  ~EventPool() {
    GpuScope scope(gpu_, std::nothrow);
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }

  Event get() {
    cudaEvent_t event = nullptr;
    {
      std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
      }
    }
    if (!event) check_cuda(cudaEventCreateWithFlags(&event, flags_), "cudaEventCreateWithFlags");
    return {event, [pool = shared_from_this()](cudaEvent_t e) {
              std::scoped_lock lock(pool->mutex_);
              pool->free_.push_back(e);
            }};
  }

 private:
  const int gpu_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

CudaStream::CudaStream(int gpu, bool urgent)
    : gpu_(gpu), synchronous_(environment_integer("LOCKSTEP_CUDA_SYNC", 0, 1).value_or(0) == 1),
      untimed_(std::make_shared<EventPool>(gpu, cudaEventDisableTiming)),
      timed_(std::make_shared<EventPool>(gpu, cudaEventDefault)) {
  GpuScope scope(gpu);
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  void* slots = nullptr;
  check_cuda(cudaHostAlloc(&slots, kSlots * sizeof(ErrorSlot), cudaHostAllocMapped), "cudaHostAlloc");
  slots_ = new (slots) ErrorSlot[kSlots];
  void* seen_by_gpu = nullptr;
  check_cuda(cudaHostGetDevicePointer(&seen_by_gpu, slots, 0), "cudaHostGetDevicePointer");
  gpu_slots_ = static_cast<ErrorSlot*>(seen_by_gpu);
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, urgent ? greatest : least),
             "cudaStreamCreateWithPriority");
}

CudaStream::~CudaStream() {
  GpuScope scope(gpu_, std::nothrow);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  cudaFreeHost(slots_);
}

std::uint64_t CudaStream::record(bool timed) {
  GpuScope scope(gpu_);
  if (timed && !capturing_) set_base();
  if (timed && capturing_) {
    // This event is a node of the graph. The event below only marks a place in it, for wait().
    captured_times_.push_back(timed_->get());
    check_cuda(cudaEventRecordWithFlags(captured_times_.back().get(), stream_, cudaEventRecordExternal),
               "cudaEventRecordWithFlags");
    timed = false;
  }
  Mark mark{recorded_ + 1, (timed ? timed_ : untimed_)->get(), timed};
  // A lost GPU accepts no more events; finished() reports that for this ticket.
  mark.status = cudaEventRecord(mark.event.get(), stream_);
  if (capturing_) check_cuda(mark.status, "cudaEventRecord");
  if (synchronous_ && mark.status == cudaSuccess) mark.status = cudaEventSynchronize(mark.event.get());
  if (mark.status != cudaSuccess) cudaGetLastError();
  std::scoped_lock lock(mutex_);
  marks_.push_back(std::move(mark));
  return ++recorded_;
}

// Waits until the stream is idle, so that the event happens between two clock reads that are close together.
CudaStream::Base CudaStream::make_base() {
  GpuScope scope(gpu_);
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  constexpr int kTries = 4;
  Base best;
  std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    Event event = timed_->get();
    const std::int64_t before = now_ns();
    check_cuda(cudaEventRecord(event.get(), stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
    const std::int64_t after = now_ns();
    if (after - before >= nearest) continue;
    nearest = after - before;
    best = {std::move(event), before + nearest / 2};
  }
  return best;
}

void CudaStream::set_base() {
  {
    std::scoped_lock lock(mutex_);
    if (base_.event) return;
  }
  Base base = make_base();
  std::scoped_lock lock(mutex_);
  base_ = std::move(base);
}

CudaStream::Event CudaStream::event_of(std::uint64_t ticket) {
  std::scoped_lock lock(mutex_);
  if (ticket <= finished_) return {};
  return marks_[static_cast<std::size_t>(ticket - marks_.front().ticket)].event;
}

void CudaStream::wait(Stream& other, std::uint64_t ticket) {
  auto* stream = dynamic_cast<CudaStream*>(&other);
  if (!stream) return other.synchronize(ticket);
  const Event event = stream->event_of(ticket);
  if (!event) return;
  GpuScope scope(gpu_);
  check_cuda(cudaStreamWaitEvent(stream_, event.get(), 0), "cudaStreamWaitEvent");
}

std::uint64_t CudaStream::finished() {
  std::scoped_lock lock(mutex_);
  if (marks_.empty()) return finished_;
  GpuScope scope(gpu_);
  while (!marks_.empty()) {
    const Mark& mark = marks_.front();
    const cudaError_t status = mark.status == cudaSuccess ? cudaEventQuery(mark.event.get()) : mark.status;
    if (status != cudaSuccess) cudaGetLastError();  // clears "not ready", which CUDA keeps
    if (status == cudaErrorNotReady) break;
    if (status != cudaSuccess) {
      throw StreamError(fmt::format("cuda:{}: {} ({})", gpu_, cudaGetErrorString(status), cudaGetErrorName(status)),
                        finished_ + 1);
    }
    finished_ = mark.ticket;
    if (mark.timed) times_.emplace(mark.ticket, Time{mark.clock ? mark.clock : this, mark.event});
    const Mark over = std::move(marks_.front());
    marks_.pop_front();
    take_data_errors(over);
  }
  return finished_;
}

void CudaStream::take_data_errors(const Mark& mark) {
  std::string first = take_data_error(mark.ticket % kSlots);
  for (const auto& stream : mark.captured) {
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      std::string what = stream->take_data_error(slot);
      if (first.empty()) first = std::move(what);
    }
  }
  if (first.empty()) return;
  // Launches of one graph share their slots, too.
  const bool exact = mark.captured.empty() && recorded_ + 1 - mark.ticket < kSlots;
  throw StreamError(first, mark.ticket, exact ? StreamError::Lost::ticket : StreamError::Lost::from_ticket);
}

std::string CudaStream::take_data_error(std::size_t number) {
  ErrorSlot& slot = slots_[number];
  const DataError error = std::atomic_ref(slot.error).load(std::memory_order_acquire);
  if (error == DataError::none) return {};
  std::string what = describe(slot, error);
  slot.error = DataError::none;
  std::atomic_ref(slot.claimed).store(0, std::memory_order_release);
  return what;
}

void CudaStream::synchronize(std::uint64_t ticket) noexcept {
  const Event event = event_of(ticket);
  GpuScope scope(gpu_, std::nothrow);
  if (event && cudaEventSynchronize(event.get()) != cudaSuccess) cudaGetLastError();
}

TimeSpan CudaStream::times_of(std::uint64_t begin, std::uint64_t end) {
  const std::optional<Time> first = take_time(begin), last = take_time(end);
  if (!first || !last) {
    const std::int64_t now = now_ns();
    return {now, now};
  }
  std::scoped_lock lock(last->clock->mutex_);
  const TimeSpan times{last->clock->time_of(first->event), last->clock->time_of(last->event)};
  // Comes last, because two bases differ by a rounding error, which may be longer than a short task.
  last->clock->move_base_near(last->event, times.end_ns);
  return times;
}

std::optional<CudaStream::Time> CudaStream::take_time(std::uint64_t ticket) {
  std::scoped_lock lock(mutex_);
  const auto found = times_.extract(ticket);
  if (found.empty()) return std::nullopt;
  return found.mapped();
}

std::int64_t CudaStream::time_of(const Event& event) {
  GpuScope scope(gpu_);
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, base_.event.get(), event.get()), "cudaEventElapsedTime");
  return base_.ns + static_cast<std::int64_t>(double{milliseconds} * 1e6);
}

void CudaStream::move_base_near(const Event& event, std::int64_t ns) {
  constexpr std::int64_t kFar = 500'000'000;  // the 24 bits of a float resolve 500 ms to about 30 ns
  if (ns - base_.ns < kFar) return;
  Event base = event;
  if (!captured_times_.empty()) {
    // A graph's event happens again at the next launch. This stream has only captured, so it is idle.
    GpuScope scope(gpu_);
    base = timed_->get();
    check_cuda(cudaEventRecord(base.get(), stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(base.get()), "cudaEventSynchronize");
  }
  base_ = {base, time_of(base)};
}

void CudaStream::begin_capture(bool timed) {
  if (timed) set_base();
  capturing_ = true;
}

std::vector<CudaStream::Event> CudaStream::end_capture() {
  capturing_ = false;
  std::scoped_lock lock(mutex_);
  marks_.clear();
  finished_ = recorded_;
  return captured_times_;
}

std::uint64_t CudaStream::record_graph(std::vector<std::shared_ptr<CudaStream>> streams,
                                       std::span<const GraphTime> times) {
  // When this ticket is over, the events hold the times of this launch.
  const std::uint64_t over = record(false);
  std::scoped_lock lock(mutex_);
  marks_.back().captured = std::move(streams);
  for (const GraphTime& time : times) {
    marks_.push_back({.ticket = ++recorded_, .event = time.event, .timed = true, .clock = time.clock});
  }
  return times.empty() ? 0 : over + 1;
}

}  // namespace lockstep
