// Differentiable members of Tensor.
#include <span>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"

namespace lockstep {
namespace {

// Moves a whole tensor by `move`, and its gradient back.
Tensor moved(std::string_view name, const Tensor& x, const Array& from, const Array& to) {
  const Tensor inputs[] = {x};
  return record_mix(name, inputs, {Tensor(to)},
                    [home = from.device()](const Node& node, const BackwardPass&, std::span<const Gradient> dy,
                                           std::span<Gradient> dx) {
                      if (node.needs(0)) dx[0].add_single(dy[0].once(home));
                    })[0];
}

}  // namespace

Tensor Tensor::reshape(Shape shape) const { return lockstep::reshape(*this, shape); }

Tensor Tensor::narrow(std::int64_t start, std::int64_t count) const { return lockstep::narrow(*this, 0, start, count); }
Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  return lockstep::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int dim, std::int64_t index) const { return lockstep::select(*this, dim, index); }

Tensor Tensor::to(Device device, CopyOptions options) const {
  check(defined(), "to: undefined tensor");
  if (kind() == Kind::cut) {
    fail("to: {} is cut over the batch, expected it in one piece: gather() it", describe());
  }
  if (kind() == Kind::whole && this->device() == device) return *this;
  return moved("to", *this, array(), ops::to_device(array(), device, options));
}

Tensor Tensor::pin(Device device) const {
  check(kind() == Kind::whole, "pin: the tensor is {}, expected host memory", describe());
  return moved("pin", *this, array(), ops::pin(array(), device));
}

void Tensor::copy_from(const Tensor& x, CopyOptions options) const {
  if (grad_enabled()) {
    check(!x.requires_grad(),
          "copy_from: {} needs a gradient, but a copy in place records none: detach() it, or use to()", x);
    check(!grad_meta() || !grad_meta()->node,
          "copy_from: {} has a history, and its gradient would be that of the old elements: detach() it", describe());
  }
  check(defined() && x.defined(), "copy_from: undefined tensor");
  if (kind() == Kind::cut) {
    check(x.kind() == Kind::cut && x.cut() == cut() && same_placement(x.placement(), placement()),
          "copy_from: {} is cut over the batch, but {} is not cut in the same way", describe(), x);
    for (std::size_t s = 0; s < parts().size(); ++s) ops::copy_(x.parts()[s], parts()[s], options);
    return;
  }
  // All replicas.
  for (const Array& part : parts()) ops::copy_(x.array(), part, options);
}

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

Tensor Tensor::to(Layout layout) const {
  return lift("reorder", place_as("to", *this), {*this}, [layout](const Arrays& in) -> Lifted {
    return {ops::to_layout(in[0], layout), [](const PartPass&, const Array& dy) -> Arrays { return {dy}; }};
  });
}

}  // namespace lockstep
