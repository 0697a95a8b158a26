#include "lockstep/parallel/summing_gpu.h"

#include <optional>
#include <vector>

#include "lockstep/base/tree.h"
#include "lockstep/device/gpu.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

View flat(const void* data, DType dtype, std::size_t count) {
  return {const_cast<void*>(data), dtype, Layout::plain, {static_cast<std::int64_t>(count)}};
}

}  // namespace

// The stream is urgent, because a sum is small compared to the computation, and the next step waits for it.
SummingGpu::SummingGpu(Device gpu)
    : state_(state_of(gpu, "reducer").shared_from_this()), stream_(make_gpu_stream(state_->gpu, true)),
      context_(state_->backend->make_context(stream_, 1, state_->allocator->scratch())) {}

void SummingGpu::wait() {
  const std::uint64_t ticket = stream_->record();
  stream_->synchronize(ticket);
  stream_->finished();
}

std::shared_ptr<std::byte> SummingGpu::allocate(std::size_t bytes) {
  Array memory = ops::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device());
  // The engine does not know this stream, so the stream cannot wait for the memory's last user; the host does.
  state_->engine->wait_unused(memory.resource());
  auto* data = static_cast<std::byte*>(memory.view().data);
  return {std::make_shared<Array>(std::move(memory)), data};
}

void SummingGpu::sum(DType dtype, std::span<std::byte* const> leaves, std::byte* out, std::size_t count) {
  if (dtype == DType::f32) {
    std::vector<View> views;
    for (std::byte* leaf : leaves) views.push_back(leaf != nullptr ? flat(leaf, dtype, count) : View());
    return backend().run(context(), kernels::TreeSum{views, flat(out, dtype, count)});
  }
  // A sum of two bf16 tensors is rounded.
  const auto leaf = [&](std::size_t i) { return leaves[i] != nullptr ? std::optional(leaves[i]) : std::nullopt; };
  const auto join = [&](std::byte* a, std::byte* b) {
    backend().run(context(),
                  kernels::Binary{BinaryOp::add, flat(a, dtype, count), flat(b, dtype, count), flat(a, dtype, count)});
    return std::optional(a);
  };
  const std::byte* total = tree_fold(0, leaves.size(), leaf, join).value();
  backend().run(context(), kernels::Copy{flat(total, dtype, count), flat(out, dtype, count)});
}

void SummingGpu::fill_with_zeros(DType dtype, std::byte* out, std::size_t count) {
  backend().run(context(), kernels::Fill{0, flat(out, dtype, count)});
}

void SummingGpu::widen(const std::byte* bf16, std::byte* f32, std::size_t count) {
  backend().run(context(), kernels::Copy{flat(bf16, DType::bf16, count), flat(f32, DType::f32, count)});
}

}  // namespace lockstep
