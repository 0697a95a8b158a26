#include "lockstep/ops/prepared.h"

#include <algorithm>
#include <limits>

#include "lockstep/ops/launch.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep::ops {
namespace {

constexpr std::uint64_t kNeverMade = std::numeric_limits<std::uint64_t>::max();

}  // namespace
Array prepared_weights(const Array& w, ConvPass pass, const Conv2dOptions& options, const Shape& x, DType dtype) {
  // A recorded step repeats its tasks, but not the question whether the weights have changed.
  if (w.shard() != -1 || StepRecorder::current() || x.numel() == 0) return {};
  const std::int64_t size =
      state_of(w.device(), "conv2d").backend->conv().prepared_size(pass, options, x, w.shape(), dtype);
  if (size == 0) return {};
  const auto offset = static_cast<const std::byte*>(w.view().data) - static_cast<const std::byte*>(w.storage()->data);
  // The order depends on the algorithm, which the size tells, and not on the size of the images.
  const std::array<std::int64_t, 9> key{size,
                                        static_cast<std::int64_t>(pass),
                                        static_cast<std::int64_t>(dtype),
                                        offset,
                                        w.size(0),
                                        w.size(1),
                                        w.size(2),
                                        w.size(3),
                                        options.groups};
  Storage& storage = *w.storage();
  const std::lock_guard lock(storage.derived_mutex);
  const std::uint64_t version = storage.version.load(std::memory_order_relaxed);
  auto found = std::ranges::find(storage.derived, key, &Storage::Derived::key);
  if (found == storage.derived.end()) {
    // Memory of the same kind as the weights': it lives as long as they do.
    const Array made = empty({size}, DType::f32, w.device());
    found = storage.derived.insert(storage.derived.end(), {key, kNeverMade, made.storage()});
  }
  const Array prepared(found->storage, View{found->storage->data, DType::f32, Layout::plain, {size}});
  if (found->version == version) return prepared;
  launch("prepare weights", {w}, {prepared}, [=, w = w.view(), out = prepared.view()](Backend& b, KernelContext& c) {
    b.conv().prepare(c, pass, options, x, w, dtype, out);
  });
  found->version = version;
  return prepared;
}

}  // namespace lockstep::ops
