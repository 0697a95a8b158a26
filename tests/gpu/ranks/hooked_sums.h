// Causes faults in the middle of a sum: calls `hook` between the two exchanges, when the rank's own kernels are queued.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "lockstep/parallel/summing_gpu.h"

namespace lockstep {

class HookedSums final : public SummingDevice {
 public:
  HookedSums(Device device, std::function<void()> hook) : sums_(device), hook_(std::move(hook)) {}
  Stream& stream() override { return sums_.stream(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return sums_.allocate(bytes); }
  void sum(DType dtype, std::span<std::byte* const> leaves, std::byte* out, std::size_t count) override {
    hook_();
    sums_.sum(dtype, leaves, out, count);
  }
  void fill_with_zeros(DType dtype, std::byte* out, std::size_t count) override {
    sums_.fill_with_zeros(dtype, out, count);
  }
  void widen(const std::byte* bf16, std::byte* f32, std::size_t count) override { sums_.widen(bf16, f32, count); }

 private:
  SummingGpu sums_;
  std::function<void()> hook_;
};

}  // namespace lockstep
