#include <cstring>

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
  void run(KernelContext&, const kernels::Copy& call) override {
    visit_dtype(call.x.dtype, [&](auto from) {
      visit_dtype(call.y.dtype, [&](auto to) {
        const auto* in = call.x.as<decltype(from)>();
        auto* out = call.y.as<decltype(to)>();
        for_each_pair(call.x, call.y, [&](std::int64_t i, std::int64_t j) { out[j] = convert<decltype(to)>(in[i]); });
      });
    });
  }

  void run(KernelContext&, const kernels::CopyStrided& call) override {
    const std::size_t size = item_size(call.x.dtype);
    const auto* in = static_cast<const std::byte*>(call.x.data);
    auto* out = static_cast<std::byte*>(call.y.data);
    for (std::int64_t i = 0; i < call.copy.extent.numel(); ++i) {
      std::int64_t from = call.copy.from_first, to = call.copy.to_first, rest = i;
      for (int axis = call.copy.extent.dim() - 1; axis >= 0; --axis) {
        const std::int64_t place = rest % call.copy.extent[axis];
        from += place * call.copy.from[axis];
        to += place * call.copy.to[axis];
        rest /= call.copy.extent[axis];
      }
      std::memcpy(out + to * static_cast<std::int64_t>(size), in + from * static_cast<std::int64_t>(size), size);
    }
  }
};

}  // namespace

std::unique_ptr<CopyKernels> make_copy() { return std::make_unique<Copy>(); }

}  // namespace lockstep::reference
