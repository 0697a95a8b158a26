// Internal: a rank's GPU that sums buckets, on a stream separate from those of the lanes.
#pragma once

#include <memory>

#include "lockstep/comm/summing_device.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

class SummingGpu final : public SummingDevice {
 public:
  explicit SummingGpu(Device gpu);

  Device device() const { return Device(state_.get()); }
  Backend& backend() { return *state_->backend; }
  KernelContext& context() { return *context_; }
  // Waits until the queued work is over. Throws if the GPU has failed.
  void wait();

  Stream& stream() override { return *stream_; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void sum(DType dtype, std::span<std::byte* const> leaves, std::byte* out, std::size_t count) override;
  void fill_with_zeros(DType dtype, std::byte* out, std::size_t count) override;
  void widen(const std::byte* bf16, std::byte* f32, std::size_t count) override;

 private:
  std::shared_ptr<DeviceState> state_;
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<KernelContext> context_;
};

}  // namespace lockstep
