#include "lockstep/autograd/tensor_impl.h"

#include <algorithm>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/ops/copy.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

std::string describe_devices(const std::vector<Device>& devices) {
  return devices.size() == 1 ? std::string(devices[0].name()) : str(devices);
}

std::vector<Device> TensorImpl::devices() const {
  if (kind == Kind::cut || (kind == Kind::replicated && at)) return at->devices();
  std::vector<Device> all;
  for (const Array& part : parts) all.push_back(part.device());
  return all;
}

std::string TensorImpl::describe() const {
  if (!defined()) return "undefined";
  return fmt::format("{} {} on {}", shape.str(), name(parts[0].dtype()), describe_devices(devices()));
}

Array TensorImpl::on(Device device) const {
  check(defined() && kind != Kind::cut,
        "tensor: {} is neither whole nor replicated, expected it in one piece: gather() it", describe());
  const auto part = std::ranges::find(parts, device, &Array::device);
  if (part != parts.end()) return *part;
  if (at && kind == Kind::replicated) {
    parts.push_back(ops::to_device(parts[0], device, {.non_blocking = true}));
    return parts.back();
  }
  std::vector<Device> places;
  for (const Array& p : parts) places.push_back(p.device());
  if (device.is_host()) {
    fail(
        "{} is on {}, but the other operand is in host memory: cut a batch with split_and_load(), and copy any other "
        "tensor with to(device)",
        label.empty() ? shape.str() : label, describe_devices(places));
  }
  fail("{} is not {} {}: it lives on {}", label.empty() ? describe() : label, label.empty() ? "on" : "initialized on",
       device.name(), describe_devices(places));
}

const Array& TensorImpl::array() const {
  static const Array undefined;
  if (!defined()) return undefined;
  check(kind != Kind::cut, "tensor: {} is cut over the batch, expected it in one piece: gather() it", describe());
  return parts[0];
}

Tensor shard_tensor(std::shared_ptr<const Placement> at, Array array) {
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = array.shape();
  impl->parts.push_back(array.with_shard(at->slots()[0].shard));
  impl->at = std::move(at);
  return TensorImpl::tensor(std::move(impl));
}

Tensor cut_tensor(std::shared_ptr<const Placement> at, Cut cut, std::vector<Array> parts) {
  check(at && parts.size() == at->slots().size(), "tensor: {} parts for {} shards", parts.size(),
        at ? at->slots().size() : 0);
  auto impl = std::make_shared<TensorImpl>();
  impl->kind = Kind::cut;
  impl->shape = parts[0].shape();
  impl->shape[cut.axis] = cut.outer * at->samples() * cut.inner;
  impl->cut = cut;
  impl->at = std::move(at);
  impl->parts = std::move(parts);
  return TensorImpl::tensor(std::move(impl));
}

Tensor replicated_tensor(std::vector<Array> parts, std::shared_ptr<const Placement> at) {
  check(!parts.empty(), "tensor: replicated on no device");
  auto impl = std::make_shared<TensorImpl>();
  impl->kind = Kind::replicated;
  impl->shape = parts[0].shape();
  impl->at = std::move(at);
  impl->parts = std::move(parts);
  return TensorImpl::tensor(std::move(impl));
}

}  // namespace lockstep
