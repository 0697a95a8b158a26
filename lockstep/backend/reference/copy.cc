#include <cstring>
#include <vector>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls visit(offset in x, offset in y) for every element of two views of one shape.
template <typename Visit>
void for_each_pair(const View& x, const View& y, const Visit& visit) {
  if (x.layout == y.layout) {
    for (std::int64_t i = 0; i < x.numel(); ++i) visit(i, i);
    return;
  }
  for_each4(x.shape, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    visit(offset4(x.layout, x.shape, n, c, h, w), offset4(y.layout, y.shape, n, c, h, w));
  });
}

class Copy final : public CopyKernels {
 public:
  void copy(KernelContext&, const View& x, const View& y) override {
    visit_dtype(x.dtype, [&](auto from) {
      visit_dtype(y.dtype, [&](auto to) {
        const auto* in = x.as<decltype(from)>();
        auto* out = y.as<decltype(to)>();
        for_each_pair(x, y, [&](std::int64_t i, std::int64_t j) { out[j] = convert<decltype(to)>(in[i]); });
      });
    });
  }

  void permute(KernelContext&, const View& x, std::span<const int> axes, const View& y) override {
    int rank = x.shape.rank();
    std::vector<std::int64_t> strides(rank, 1);
    for (int axis = rank - 2; axis >= 0; --axis) strides[axis] = strides[axis + 1] * x.shape[axis + 1];
    std::size_t size = item_size(x.dtype);
    const auto* in = static_cast<const std::byte*>(x.data);
    auto* out = static_cast<std::byte*>(y.data);
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      std::int64_t source = 0, rest = i;
      for (int axis = rank - 1; axis >= 0; --axis) {
        source += rest % y.shape[axis] * strides[axes[axis]];
        rest /= y.shape[axis];
      }
      std::memcpy(out + i * size, in + source * size, size);
    }
  }

  void gather_rows(KernelContext&, const View& x, const View& rows, const View& y) override {
    const auto* row = rows.as<std::int64_t>();
    std::int64_t m = x.shape[0];
    std::size_t size = m > 0 ? x.bytes() / m : 0;
    for (std::int64_t i = 0; i < rows.numel(); ++i) {
      check(row[i] >= 0 && row[i] < m, "gather_rows: row {} at place {} is outside [0, {})", row[i], i, m);
      std::memcpy(static_cast<std::byte*>(y.data) + i * size,
                  static_cast<const std::byte*>(x.data) + row[i] * size, size);
    }
  }
};

}  // namespace

std::unique_ptr<CopyKernels> make_copy() { return std::make_unique<Copy>(); }

}  // namespace lockstep::reference
