// Upper and lower triangles of matrices.
#include "lockstep/autograd/triangle.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"

namespace lockstep {
namespace {

// x with zeros where the mask is 0.
Array masked(const Array& mask, const Array& x) { return ops::where(mask, x, ops::scalar_like(x, 0)); }

// Keeps elements [row, column] with column - row >= first and <= last.
Tensor band(std::string_view name, const Tensor& x, std::optional<std::int64_t> first,
            std::optional<std::int64_t> last) {
  check(x.defined() && x.shape().dim() >= 2, "{}: the input is {}, expected at least 2 axes", name, x.shape());
  const Placed placed = place_as(name, x);
  if (placed.kind == Kind::cut && placed.cut.axis >= x.shape().dim() - 2)
    fail_across_batch(name, x, "and it would leave out some of them");
  const auto part = [=](const Arrays& in) -> Lifted {
    const std::int64_t rows = in[0].size(-2), columns = in[0].size(-1);
    const Device device = in[0].device();
    const Array column = ops::arange(columns, DType::i64, device);
    const auto row = [&](std::int64_t diagonal) {
      return ops::reshape(ops::arange(rows, DType::i64, device, static_cast<double>(diagonal)), {rows, 1});
    };
    const Array mask =
        first ? ops::compare(CompareOp::le, row(*first), column) : ops::compare(CompareOp::le, column, row(*last));
    return {masked(mask, in[0]), [mask](const PartPass&, const Array& dy) -> Arrays { return {masked(mask, dy)}; }};
  };
  return lift(name, placed, {x}, part, [&] { return OpTraits{{}, {{"diagonal", first ? *first : *last}}}; });
}

}  // namespace

Tensor triu(const Tensor& x, std::int64_t diagonal) { return band("triu", x, diagonal, {}); }
Tensor tril(const Tensor& x, std::int64_t diagonal) { return band("tril", x, {}, diagonal); }

}  // namespace lockstep
