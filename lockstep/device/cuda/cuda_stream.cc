#include "lockstep/device/cuda/cuda_stream.h"

#include <atomic>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// In the words of the kernels that find it on the host.
std::string describe(const ErrorSlot& slot, DataError error) {
  switch (error) {
    case DataError::label_out_of_range:
      return fmt::format("cross_entropy: label {} of sample {} is outside [0, {})", slot.value, slot.index, slot.end);
    case DataError::row_out_of_range:
      return fmt::format("gather_rows: row {} at place {} is outside [0, {})", slot.value, slot.index, slot.end);
    case DataError::none: break;
  }
  return "";
}

}  // namespace

// Events in use return to the pool with their last handle.
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
    : gpu_(gpu),
      synchronous_(environment_integer("LOCKSTEP_CUDA_SYNC", 0, 1).value_or(0) == 1),
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
  if (timed) set_base();
  Mark mark{recorded_ + 1, (timed ? timed_ : untimed_)->get(), timed};
  // A lost GPU takes no more events: finished() says so of this ticket.
  mark.status = cudaEventRecord(mark.event.get(), stream_);
  if (synchronous_ && mark.status == cudaSuccess) mark.status = cudaEventSynchronize(mark.event.get());
  if (mark.status != cudaSuccess) cudaGetLastError();
  std::scoped_lock lock(mutex_);
  marks_.push_back(std::move(mark));
  return ++recorded_;
}

void CudaStream::set_base() {
  {
    std::scoped_lock lock(mutex_);
    if (base_) return;
  }
  Event base = timed_->get();
  // On a stream that has nothing to do, so that the event happens between two looks at the clock that are near each other.
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  const std::int64_t before = now_ns();
  check_cuda(cudaEventRecord(base.get(), stream_), "cudaEventRecord");
  check_cuda(cudaEventSynchronize(base.get()), "cudaEventSynchronize");
  const std::int64_t after = now_ns();
  std::scoped_lock lock(mutex_);
  base_ = std::move(base);
  base_ns_ = before + (after - before) / 2;
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
    if (status != cudaSuccess) cudaGetLastError();  // "not ready" stays for whoever asks next, as failures do
    if (status == cudaErrorNotReady) break;
    if (status != cudaSuccess) {
      throw StreamError(fmt::format("cuda:{}: {} ({})", gpu_, cudaGetErrorString(status), cudaGetErrorName(status)),
                        finished_ + 1);
    }
    finished_ = mark.ticket;
    if (mark.timed) times_.emplace(mark.ticket, mark.event);
    marks_.pop_front();
    take_data_error(finished_);
  }
  return finished_;
}

void CudaStream::take_data_error(std::uint64_t ticket) {
  ErrorSlot& slot = slots_[ticket % kSlots];
  const DataError error = std::atomic_ref(slot.error).load(std::memory_order_acquire);
  if (error == DataError::none) return;
  const std::string what = describe(slot, error);
  slot.error = DataError::none;
  std::atomic_ref(slot.claimed).store(0, std::memory_order_release);
  throw StreamError(what, ticket);
}

void CudaStream::synchronize(std::uint64_t ticket) noexcept {
  const Event event = event_of(ticket);
  GpuScope scope(gpu_, std::nothrow);
  if (event && cudaEventSynchronize(event.get()) != cudaSuccess) cudaGetLastError();
}

std::int64_t CudaStream::time_of(std::uint64_t ticket) {
  std::scoped_lock lock(mutex_);
  const auto found = times_.find(ticket);
  if (found == times_.end()) return now_ns();  // recorded on a GPU that was lost
  const Event event = std::move(found->second);
  times_.erase(found);
  GpuScope scope(gpu_);
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, base_.get(), event.get()), "cudaEventElapsedTime");
  const std::int64_t time = base_ns_ + static_cast<std::int64_t>(double{milliseconds} * 1e6);
  constexpr float kRebase = 500;  // a float has 24 bits: half a microsecond in 500 ms would be 20
  if (milliseconds > kRebase) {
    base_ = event;
    base_ns_ = time;
  }
  return time;
}

}  // namespace lockstep
