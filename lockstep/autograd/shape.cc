#include <numeric>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Tensor reshape(const Tensor& x, Shape shape) {
  ops::ShardScope scope(shard_of({x}));
  Tensor y = ops::reshape(ops::to_layout(x.detach(), Layout::plain), shape);
  return record("reshape", {x}, y, [old = x.shape()](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::reshape(ops::to_layout(dy, Layout::plain), old)};
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
  ops::ShardScope scope(shard_of({x}));
  return record("transpose", {x}, ops::permute(x.detach(), axes), [axes](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::permute(dy, axes)};
  });
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  ops::ShardScope scope(shard_of({x}));
  return record("cast", {x}, ops::convert(x.detach(), dtype, x.layout()), [old = x.dtype()](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::convert(dy, old, dy.layout())};
  });
}

Tensor concatenate(std::span<const Tensor> parts) {
  check(!parts.empty(), "concatenate: no tensors");
  return concatenate(parts, parts[0].device());
}

Tensor concatenate(std::span<const Tensor> parts, Device device) {
  std::vector<std::pair<Device, std::int64_t>> origin;
  for (const Tensor& part : parts) origin.emplace_back(part.device(), part.size(0));
  Tensor all = ops::concatenate(parts, device).with_shard(-1);
  return record("concatenate", parts, {all}, [origin](const Node& node, std::span<const Tensor> grads) {
    std::vector<Tensor> back;
    std::int64_t row = 0;
    Tensor dy = ops::to_layout(grads[0], Layout::plain);
    for (std::size_t i = 0; i < origin.size(); ++i) {
      Tensor piece = ops::narrow(dy, row, origin[i].second).with_shard(node.inputs[i].shard);
      back.push_back(node.needs(i) ? ops::to_device(piece, origin[i].first, {.non_blocking = true}) : Tensor());
      row += origin[i].second;
    }
    return back;
  })[0];
}

}  // namespace lockstep
