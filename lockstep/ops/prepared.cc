#include "lockstep/ops/prepared.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/ops/launch.h"
#include "lockstep/ops/origin.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep::ops {
namespace {

// Maximum number of results that are kept for one storage. A weight has a few: for the passes of a convolution, for
// each type, and for slices that are used separately, such as those of queries, keys, and values. Further slices get
// none: if they replaced others, slices that are used in turn would all be prepared each time.
constexpr std::size_t kMost = 8;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// A recorded step repeats its tasks, but not the check whether the weights have changed. Host memory is usually used
// only once, and by any thread.
bool can_share(const Array& w) {
  return w.shard() == -1 && !w.device().is_host() && !w.storage()->host && !StepRecorder::current();
}

std::int64_t offset(const Array& w) {
  return static_cast<const std::byte*>(w.view().data) - static_cast<const std::byte*>(w.storage()->data);
}

// Returns the `size` f32 elements that `prepare` makes of w, for all calls with this key. Returns an undefined array if
// there is no room, and, if `patient`, at the first call after each update.
template <typename Prepare>
Array shared(const Array& w, const PreparedWeights::Key& key, std::int64_t size, bool patient, const Prepare& prepare) {
  Storage& storage = *w.storage();
  const std::lock_guard lock(storage.mutex);
  std::vector<PreparedWeights::Result>& results = PreparedWeights::of(storage).results;
  const std::uint64_t version = storage.version.load(std::memory_order_acquire);
  auto found = std::ranges::find(results, key, &PreparedWeights::Result::key);
  if (found == results.end()) {
    // Makes room: drops results that an update has made obsolete and that nobody has asked for since.
    const auto old = [&](const PreparedWeights::Result& r) { return r.version != version && r.asked != version; };
    if (results.size() >= kMost) std::erase_if(results, old);
    if (results.size() >= kMost) return {};
    found = results.insert(results.end(), {.key = key, .version = kNever, .asked = kNever});
  }
  if (std::exchange(found->asked, version) != version && patient) return {};
  // The memory is of the same kind as that of the weights, because it lives as long as they do.
  if (!found->storage) found->storage = empty({size}, DType::f32, w.device()).storage();
  const Array prepared(found->storage, View{found->storage->data, DType::f32, Layout::plain, {size}});
  if (found->version == version) return prepared;
  const OriginScope of_machine({});  // the order depends on the instruction set
  launch("prepare weights", {w}, {prepared},
         [prepare, w = w.view(), out = prepared.view()](Backend& b, KernelContext& c) { prepare(b, c, w, out); });
  found->version = version;
  return prepared;
}

}  // namespace

// No other class is derived from Storage::Extension.
PreparedWeights& PreparedWeights::of(Storage& storage) {
  if (!storage.extension) storage.extension = std::make_unique<PreparedWeights>();
  return static_cast<PreparedWeights&>(*storage.extension);
}

Array prepared_weights(const Array& w, ConvPass pass, const Conv2dOptions& options, const Shape& x, DType dtype) {
  if (!can_share(w) || x.numel() == 0) return {};
  const std::int64_t size =
      state_of(w.device(), "conv2d").backend->conv().prepared_size(pass, options, x, w.shape(), dtype);
  if (size == 0) return {};
  // The order depends on the algorithm, which the size identifies, and not on the size of the images.
  const PreparedWeights::Key key{size,
                                 static_cast<std::int64_t>(pass),
                                 static_cast<std::int64_t>(dtype),
                                 offset(w),
                                 w.size(0),
                                 w.size(1),
                                 w.size(2),
                                 w.size(3),
                                 options.groups};
  return shared(w, key, size, false, [=](Backend& b, KernelContext& c, const View& in, const View& out) {
    b.run(c, kernels::PrepareConv{pass, options, x, in, dtype, out});
  });
}

Array prepared_weights(const Array& w, const MatmulOptions& options, std::int64_t rows, DType dtype) {
  if (!can_share(w)) return {};
  const std::int64_t size =
      state_of(w.device(), "matmul").backend->matmul().prepared_size(options, rows, w.shape(), dtype);
  if (size == 0) return {};
  constexpr std::int64_t kPlain = -1, kTransposed = -2;  // distinct from all passes of convolutions
  const PreparedWeights::Key key{
      size,     options.transpose_b ? kTransposed : kPlain, static_cast<std::int64_t>(dtype), offset(w), w.size(0),
      w.size(1)};
  return shared(w, key, size, true, [=](Backend& b, KernelContext& c, const View& in, const View& out) {
    b.run(c, kernels::PrepareMatmul{options, in, dtype, out});
  });
}

}  // namespace lockstep::ops
