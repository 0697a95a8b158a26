// The CUDA runtime's functions for streams, events, and kernels.
#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

namespace {

// Queues work, which is skipped once the device has failed.
cudaError_t enqueue(cudaStream_t handle, std::function<void()> work) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (cudaError_t error = device_error(stream->device()); error != cudaSuccess) return set_last_error(error);
  stream->enqueue([device = stream->device(), work = std::move(work)] {
    if (device_error(device) == cudaSuccess) work();
  });
  return cudaSuccess;
}

EventPointer& pointer(cudaEvent_t event) { return *reinterpret_cast<EventPointer*>(event); }

bool valid(const Launch& l) {
  constexpr std::size_t kMostArguments = 32764;
  const std::uint64_t threads = std::uint64_t{l.block.x} * l.block.y * l.block.z;
  return l.grid.x > 0 && l.grid.y > 0 && l.grid.z > 0 && l.grid.x <= 0x7fffffff && l.grid.y <= 65535 &&
         l.grid.z <= 65535 && threads > 0 && threads <= 1024 && l.block.z <= 64 && l.shared_bytes <= 227 << 10 &&
         l.argument_bytes <= kMostArguments;
}

}  // namespace

cudaError_t cuda_emulator::launch(const Launch& launch, cudaStream_t stream) {
  if (!valid(launch)) {
    launch.destroy(launch.arguments);
    return set_last_error(cudaErrorInvalidConfiguration);
  }
  // The function may be copied, but the arguments must be destroyed only once.
  std::shared_ptr<void> arguments(launch.arguments, launch.destroy);
  // A stream accepts kernels only while its device is the thread's current one.
  Stream* const on = find_stream(stream);
  if (on && on->device() != current_device()) return set_last_error(cudaErrorInvalidResourceHandle);
  const int device = on ? on->device() : current_device();
  if (!runs_kernels(device)) return set_last_error(cudaErrorNoKernelImageForDevice);
  return enqueue(stream, [launch, arguments, device] {
    if (launch.reaches_all(launch.arguments, device)) {
      run_blocks(launch);
    } else {
      fail_device(device, cudaErrorIllegalAddress);
    }
  });
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  *stream = reinterpret_cast<cudaStream_t>(create_stream(current_device(), priority));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return set_last_error(destroy_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (!stream->may_wait()) return set_last_error(cudaErrorStreamCaptureUnsupported);
  stream->synchronize();
  return set_last_error(device_error(stream->device()));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (!stream->may_wait()) return set_last_error(cudaErrorStreamCaptureUnsupported);
  if (cudaError_t error = device_error(stream->device()); error != cudaSuccess) return set_last_error(error);
  return set_last_error(stream->idle() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  return *priority = stream->priority(), cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  Stream* stream = find_stream(handle);
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  if (const auto& captured = pointer(event)->captured) {
    if (captured->capture->over) return set_last_error(cudaErrorCapturedEvent);
    if (stream->place() && stream->place()->capture != captured->capture)
      return set_last_error(cudaErrorStreamCaptureMerge);
    stream->join(*captured);
    return cudaSuccess;
  }
  if (!stream->may_wait()) return set_last_error(cudaErrorStreamCaptureIsolation);
  stream->enqueue([event = pointer(event), record = pointer(event)->recorded()] { event->wait(record); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return enqueue(stream, [=] { function(argument); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(new EventPointer(std::make_shared<Event>(current_device(), flags)));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  current_device();
  delete &pointer(event);
  return cudaSuccess;
}

// Events happen on a failed device, too, so that waiting threads learn of the failure.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (!stream || stream->device() != pointer(event)->device()) return set_last_error(cudaErrorInvalidResourceHandle);
  if (stream->place()) {
    pointer(event)->captured = *stream->place();
    return cudaSuccess;
  }
  pointer(event)->captured.reset();
  stream->enqueue([event = pointer(event), record = pointer(event)->record()] { event->happen(record); });
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  Stream* stream = find_stream(handle);
  if (!stream || !stream->place() || flags != cudaEventRecordExternal) return cudaEventRecord(event, handle);
  if (stream->device() != pointer(event)->device()) return set_last_error(cudaErrorInvalidResourceHandle);
  // A node that makes the event happen at each launch.
  stream->enqueue([event = pointer(event)] { event->happen(event->record()); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (pointer(event)->captured) return set_last_error(cudaErrorCapturedEvent);
  if (cudaError_t error = device_error(current_device()); error != cudaSuccess) return set_last_error(error);
  return set_last_error(pointer(event)->happened() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (pointer(event)->captured) return set_last_error(cudaErrorCapturedEvent);
  pointer(event)->wait(pointer(event)->recorded());
  return set_last_error(device_error(current_device()));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  current_device();
  Event &a = *pointer(begin), &b = *pointer(end);
  if (!a.timed() || !b.timed() || a.recorded() == 0 || b.recorded() == 0) {
    return set_last_error(cudaErrorInvalidResourceHandle);
  }
  if (!a.happened() || !b.happened()) return set_last_error(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(b.time() - a.time()).count();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

}  // extern "C"
