#include <numeric>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"

namespace lockstep {

Tensor reshape(const Tensor& x, Shape shape) {
  check(x.defined(), "reshape: undefined tensor");
  shape = ops::resolve_shape("reshape", shape, x.numel());
  check(shape.numel() == x.numel(), "reshape: {} elements as {}, expected {}", x.numel(), shape.str(), x.shape().str());
  const Placed placed = place_reshaped("reshape", x, shape);
  return lift("reshape", placed, {x}, [&](const Arrays& in) -> Lifted {
    Shape part = shape;
    if (placed.kind == Kind::cut) {
      const std::int64_t rest = shape[placed.cut.axis] == 0 ? 0 : shape.numel() / shape[placed.cut.axis];
      part[placed.cut.axis] = rest == 0 ? 0 : in[0].numel() / rest;
    }
    return {ops::reshape(ops::to_layout(in[0], Layout::plain), part),
            [old = in[0].shape()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::reshape(ops::to_layout(dy, Layout::plain), old)};
            }};
  });
}

Tensor flatten(const Tensor& x, int first) {
  check(first >= 0 && first < x.shape().rank(), "flatten: axis {} of {}", first, x.shape().str());
  Shape shape(x.shape().dims().first(static_cast<std::size_t>(first) + 1));
  for (int i = first + 1; i < x.shape().rank(); ++i) shape[first] *= x.shape()[i];
  return reshape(x, shape);
}

Tensor transpose(const Tensor& x, int a, int b) {
  int rank = x.shape().rank();
  check(a >= 0 && a < rank && b >= 0 && b < rank, "transpose: axes {} and {} of {}", a, b, x.shape().str());
  std::vector<int> axes(static_cast<std::size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[static_cast<std::size_t>(a)], axes[static_cast<std::size_t>(b)]);
  return lift("transpose", place_permuted("transpose", x, axes), {x}, [&](const Arrays& in) -> Lifted {
    return {ops::permute(in[0], axes),
            [axes](const PartPass&, const Array& dy) -> Arrays { return {ops::permute(dy, axes)}; }};
  });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return lift("cast", place_as("cast", x), {x}, [dtype](const Arrays& in) -> Lifted {
    return {ops::convert(in[0], dtype, in[0].layout()), [old = in[0].dtype()](const PartPass&, const Array& dy) -> Arrays {
              return {ops::convert(dy, old, dy.layout())};
            }};
  });
}

Tensor concatenate(std::span<const Tensor> parts) {
  check(!parts.empty(), "concatenate: no tensors");
  for (const Tensor& part : parts) check(part.defined(), "concatenate: an input is undefined");
  Placed placed = place("concatenate", parts);
  if (placed.kind == Kind::whole && !placed.at) return concatenate(parts, placed.devices[0]);
  if (placed.kind == Kind::cut) placed.cut = parts[0].cut();
  const bool on_batch = placed.kind == Kind::cut && placed.cut.axis == 0;
  for (std::size_t i = 0; placed.kind == Kind::cut && i < parts.size(); ++i) {
    const Tensor& part = parts[i];
    check(part.kind() == Kind::cut && part.cut().axis == placed.cut.axis && part.cut().inner == placed.cut.inner &&
              (on_batch || part.cut() == parts[0].cut()),
          "concatenate: {} and {} have their samples in different places", parts[0].describe(), part.describe());
    if (on_batch && i > 0) placed.cut.outer += part.cut().outer;
  }
  return lift("concatenate", placed, parts, [](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> rows;
    for (const Array& part : in) rows.push_back(part.size(0));
    return {ops::concatenate({in.data(), in.size()}, in[0].device()),
            [rows](const PartPass& p, const Array& dy) -> Arrays {
              Arrays back;
              std::int64_t row = 0;
              const Array plain = ops::to_layout(dy, Layout::plain);
              for (std::size_t i = 0; i < rows.size(); ++i) {
                back.push_back(p.needs(i) ? ops::narrow(plain, row, rows[i]) : Array());
                row += rows[i];
              }
              return back;
            }};
  });
}

Tensor concatenate(std::span<const Tensor> parts, Device device) {
  std::vector<Array> arrays;
  std::vector<std::pair<Device, std::int64_t>> origin;
  for (const Tensor& part : parts) {
    check(part.defined() && part.kind() != Kind::cut, "concatenate: {} to {}, expected it in one piece: gather() it",
          part.describe(), device.name());
    arrays.push_back(part.array());
    origin.emplace_back(part.device(), part.size(0));
  }
  std::vector<Tensor> all{ops::concatenate(arrays, device).with_shard(-1)};
  return record_mix("concatenate", parts, std::move(all),
                    [origin, device](const Node& node, const BackwardPass&, std::span<const Gradient> grads,
                                     std::span<Gradient> dx) {
                      std::int64_t row = 0;
                      const Array dy = ops::to_layout(grads[0].once(device), Layout::plain);
                      for (std::size_t i = 0; i < origin.size(); ++i) {
                        if (node.needs(i)) {
                          dx[i].add_single(ops::to_device(ops::narrow(dy, row, origin[i].second), origin[i].first,
                                                          {.non_blocking = true}));
                        }
                        row += origin[i].second;
                      }
                    })[0];
}

}  // namespace lockstep
