#include <cstring>
#include <vector>

#include "lockstep/backend/reference/broadcast.h"
#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls visit(place in the indexed array, place in `other`) for every element of `other`, [outer, n, inner]. The
// indexed array is [outer, m, inner].
template <typename Visit>
void for_each_indexed(const View& index, const Shape& other, std::int64_t m, const Visit& visit) {
  const auto* number = index.as<std::int64_t>();
  for (std::int64_t i = 0; i < other.numel(); ++i) {
    const std::int64_t place = broadcast_source(index.shape, other, i), j = number[place];
    check(j >= 0 && j < m, "index: {} at place {} is outside [0, {})", j, place, m);
    const std::int64_t a = i / (other[1] * other[2]), b = i % other[2];
    visit((a * m + j) * other[2] + b, i);
  }
}

class Index final : public IndexKernels {
 public:
  void run(KernelContext&, const kernels::Take& call) override {
    const auto size = static_cast<std::int64_t>(item_size(call.x.dtype));
    for_each_indexed(call.index, call.y.shape, call.x.shape[1], [&](std::int64_t from, std::int64_t to) {
      std::memcpy(static_cast<std::byte*>(call.y.data) + to * size,
                  static_cast<const std::byte*>(call.x.data) + from * size, static_cast<std::size_t>(size));
    });
  }

  void run(KernelContext&, const kernels::ScatterSum& call) override {
    std::vector<double> sums(call.y.numel());
    Elements in(call.x);
    for_each_indexed(call.index, call.x.shape, call.y.shape[1],
                     [&](std::int64_t to, std::int64_t from) { sums[to] += in[from]; });
    store(sums, call.y);
  }

  void run(KernelContext&, const kernels::Scatter& call) override {
    const auto size = static_cast<std::int64_t>(item_size(call.x.dtype));
    for_each_indexed(call.index, call.x.shape, call.y.shape[1], [&](std::int64_t to, std::int64_t from) {
      std::memcpy(static_cast<std::byte*>(call.y.data) + to * size,
                  static_cast<const std::byte*>(call.x.data) + from * size, static_cast<std::size_t>(size));
    });
  }
};

}  // namespace

std::unique_ptr<IndexKernels> make_index() { return std::make_unique<Index>(); }

}  // namespace lockstep::reference
