// Those of Tensor's members that have a derivative.
#include <cstring>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/node.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// Zeros of this shape, but for `rows` from row `start` on.
Tensor among_zeros(const Tensor& rows, std::int64_t start, const Shape& shape) {
  if (rows.device().is_host()) {
    Tensor all = Tensor::host(shape, rows.dtype()).with_shard(rows.shard());
    rows.wait();
    if (rows.numel() > 0) {
      std::memcpy(ops::narrow(all, start, rows.size(0)).view().data, rows.view().data, rows.view().bytes());
    }
    return all;
  }
  Tensor all = ops::empty(shape, rows.dtype(), rows.device(), rows.layout());
  ops::fill_(all, 0);
  if (rows.numel() > 0) ops::copy_(rows, ops::narrow(all, start, rows.size(0)));
  return all;
}

// One gradient, moved to where the input is.
auto moved_back(Device from) {
  return [from](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::to_device(dy, from, {.non_blocking = true})};
  };
}

}  // namespace

Tensor Tensor::reshape(Shape shape) const {
  Tensor y = ops::reshape(*this, shape);
  if (!grad_meta_ || !grad_enabled()) return y;
  return record("reshape", {*this}, y, [old = this->shape()](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{ops::reshape(ops::to_layout(dy, Layout::plain), old)};
  });
}

Tensor Tensor::narrow(std::int64_t start, std::int64_t count) const {
  Tensor y = ops::narrow(*this, start, count);
  if (!grad_meta_ || !grad_enabled()) return y;
  return record("narrow", {*this}, y, [old = shape(), start](const Node&, const Tensor& dy) {
    return std::vector<Tensor>{among_zeros(dy, start, old)};
  });
}

Tensor Tensor::to(Device device, CopyOptions options) const {
  if (defined() && this->device() == device) return *this;
  Tensor y = ops::to_device(detach(), device, options);
  if (!grad_meta_ || !grad_enabled()) return y;
  return record("to", {*this}, y, moved_back(this->device()));
}

Tensor Tensor::pin(Device device) const {
  Tensor y = ops::pin(detach(), device);
  if (!grad_meta_ || !grad_enabled()) return y;
  return record("pin", {*this}, y, moved_back(Device()));
}

void Tensor::copy_from(const Tensor& x, CopyOptions options) const {
  if (grad_enabled()) {
    check(!x.grad_meta_, "copy_from: {} needs a gradient, but a copy in place records none: detach() it, or use to()",
          x.describe());
    check(!grad_meta_ || !grad_meta_->node,
          "copy_from: {} has a history, and its gradient would be that of the old elements: detach() it", describe());
  }
  ops::copy_(x, *this, options);
}

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

Tensor Tensor::to(Layout layout) const {
  ops::ShardScope scope(shard_of({*this}));
  Tensor y = ops::to_layout(detach(), layout);
  return record("reorder", {*this}, y, [](const Node&, const Tensor& dy) { return std::vector<Tensor>{dy}; });
}

}  // namespace lockstep
