#include "lockstep/autograd/tensor.h"

#include <algorithm>
#include <ostream>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/gradient.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/saved_array.h"
#include "lockstep/autograd/tensor_hooks.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {
namespace {

template <typename To, typename From>
To converted_to(From value) {
  if constexpr (is_half<From>) {
    return converted_to<To>(static_cast<float>(value));
  } else if constexpr (is_half<To>) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

// A leaf whose gradient is kept for the user.
struct PlainLeaf : GradMeta {
  Kind kind;
  std::shared_ptr<const Placement> at;
  Cut cut;
  Shape shape;
  DType dtype;
  // Placed like the leaf's parts. Until grad() returns it, it may share memory with other gradients.
  mutable std::vector<Array> sum;
  mutable bool shown = false;
  std::vector<Array> before;  // the sum without the latest pass
  std::vector<Device> devices;

  void reached(BackwardPass&) override { before = sum; }
  void abandon(const BackwardPass&) override { sum = before; }

  void accumulate(const BackwardPass& pass, Gradient g) override {
    std::vector<Array> found;
    if (kind == Kind::cut) {
      found = cut_parts(g, *at, cut, shape, dtype);
    } else {
      const TotalGradient total(g, kind == Kind::replicated && at ? at : pass.at);
      for (Device device : devices) found.push_back(total.on(device));
    }
    shown = false;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i == sum.size()) {
        sum.push_back(found[i]);
      } else {
        Accumulator both{sum[i]};
        both.add(found[i], found[i].shard());
        sum[i] = both.value;
      }
    }
  }
  Tensor grad() const override {
    if (sum.empty()) return {};
    for (Array& part : sum) {
      if (!shown && part.storage().use_count() > 1) part = ops::copy_of(part);
    }
    shown = true;
    switch (kind) {
      case Kind::cut: return cut_tensor(at, cut, sum);
      case Kind::replicated: return replicated_tensor(sum, at);
      default: return sum[0];
    }
  }
  void zero_grad() override {
    sum.clear();
    before.clear();
  }
};

// Records a move of a whole tensor from one array to another; the gradient moves back.
Tensor moved(std::string_view name, const Tensor& x, const Array& from, const Array& to) {
  const Tensor inputs[] = {x};
  return record_mix(name, inputs, {Tensor(to)},
                    [home = from.device()](const Node& node, const BackwardPass&, std::span<const Gradient> dy,
                                           std::span<Gradient> dx) {
                      if (node.needs(0)) dx[0].add_single(dy[0].once(home));
                    })[0];
}

}  // namespace

Tensor::Tensor(Array array) {
  if (!array.defined()) return;
  impl_ = std::make_shared<TensorImpl>();
  impl_->shape = array.shape();
  impl_->parts.push_back(std::move(array));
}

const TensorImpl* Tensor::impl() const {
  static const TensorImpl undefined;
  return impl_ ? impl_.get() : &undefined;
}

const Shape& Tensor::shape() const { return (*this)->shape; }
DType Tensor::dtype() const { return impl_ ? impl_->parts[0].dtype() : DType::f32; }
Layout Tensor::layout() const { return impl_ ? impl_->parts[0].layout() : Layout::plain; }
Device Tensor::device() const { return impl_ ? impl_->parts[0].device() : Device(); }
std::vector<Device> Tensor::devices() const { return (*this)->devices(); }
std::vector<Tensor> Tensor::shards() const { return {(*this)->parts.begin(), (*this)->parts.end()}; }
bool Tensor::requires_grad() const { return (*this)->grad != nullptr; }
std::string Tensor::describe() const { return (*this)->describe(); }

Tensor Tensor::from(Array values, const TensorOptions& options) {
  if (options.dtype && *options.dtype != values.dtype()) {
    const Array converted = Array::host(values.shape(), *options.dtype);
    visit_dtype(values.dtype(), [&](auto from) {
      visit_dtype(*options.dtype, [&](auto to) {
        for (std::int64_t i = 0; i < values.numel(); ++i) {
          converted.view().as<decltype(to)>()[i] = converted_to<decltype(to)>(values.view().as<decltype(from)>()[i]);
        }
      });
    });
    values = converted;
  }
  return ops::to_device(values, options.device);
}

void Tensor::wait() const {
  check(defined(), "wait: undefined tensor");
  for (const Array& part : impl_->parts) part.wait();
}

Array Tensor::readable(std::string_view what) const {
  check(defined(), "{}: undefined tensor", what);
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->read(what, *this);
  CheckpointScope::read(what, {this, 1});
  if (impl_->kind != Kind::cut) return ops::host_readable(impl_->parts[0]);
  if (impl_->at->exchange()) {
    fail("{}: rows of {} are in other processes: gather() it, in every process", what, *this);
  }
  return join_parts(*this, Device());
}

void* Tensor::host_data(DType type, bool writes) const {
  check(defined() && device().is_host() && impl_->kind != Kind::cut, "data_ptr: {}, expected host memory: to_host()",
        describe());
  check(dtype() == type, "data_ptr: the elements are {}, requested as {}", name(dtype()), name(type));
  check(same_order(impl_->array().layout(), Layout::plain, shape()), "data_ptr: {} is {}, expected plain elements",
        describe(), name(impl_->array().layout()));
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->read("data_ptr", *this);
  if (writes) {
    impl_->storage()->check_writable();
    impl_->storage()->wait_writable(false);
  }
  wait();
  return impl_->view().data;
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << x.str(); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << device.name(); }

Tensor Tensor::to_host() const {
  const Array elements = readable("to_host");
  return ops::to_device(elements, kHost);
}

double Tensor::item() const {
  const Array x = readable("item");
  switch (x.dtype()) {
    case DType::f64: return x.item<double>();
    case DType::u8:
    case DType::boolean: return x.item<std::uint8_t>();
    case DType::i64: {
      const auto value = x.item<std::int64_t>();
      const auto found = static_cast<double>(value);
      check(found < 0x1p63 && static_cast<std::int64_t>(found) == value,
            "item: {} is no double, expected item<std::int64_t>()", value);
      return found;
    }
    default: return x.item<float>();
  }
}

double Tensor::whole_item(DType type) const {
  const double value = std::trunc(item());
  const bool fits = type == DType::u8 ? value >= 0 && value <= 255 : value >= -0x1p63 && value < 0x1p63;
  check(fits, "item: {} does not fit into {}", value, name(type));
  return value;
}

Tensor& Tensor::set_requires_grad(bool value) {
  check(defined() && is_floating(dtype()), "requires_grad: {}, expected a floating tensor", *this);
  check(impl_->label.empty(), "requires_grad: {} is set by Parameter::set_trainable()", impl_->label);
  check(!impl_->grad || !impl_->grad->node, "requires_grad: {} is not a leaf", *this);
  if (!value) {
    impl_->grad = nullptr;
  } else if (!impl_->grad) {
    auto leaf = std::make_shared<PlainLeaf>();
    leaf->kind = impl_->kind;
    leaf->at = impl_->at;
    leaf->cut = impl_->cut;
    leaf->shape = impl_->shape;
    leaf->dtype = dtype();
    leaf->devices = devices();
    impl_->grad = std::move(leaf);
  }
  return *this;
}

Tensor Tensor::grad() const { return impl_ && impl_->grad ? impl_->grad->grad() : Tensor(); }
void Tensor::zero_grad() {
  if (impl_ && impl_->grad) impl_->grad->zero_grad();
}
void Tensor::backward() const { backward(BackwardOptions{}); }
void Tensor::backward(const BackwardOptions& options) const {
  const Tensor seed;
  lockstep::backward(std::span(this, 1), std::span(&seed, 1), options);
}

Tensor Tensor::detach() const {
  Tensor t;
  if (!impl_) return t;
  t.impl_ = std::make_shared<TensorImpl>(*impl_);
  t.impl_->grad = nullptr;
  // The copy shares a parameter's memory, but errors must not call it the parameter.
  t.impl_->label.clear();
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->same(*this, t);
  return t;
}

Tensor Tensor::reshape(Shape shape) const { return lockstep::reshape(*this, shape); }

Tensor Tensor::view(Shape shape) const {
  check(layout() == Layout::plain, "view: the elements of {} are {}, expected plain: use reshape()", *this,
        name(layout()));
  return lockstep::reshape(*this, shape);
}

Tensor Tensor::narrow(int dim, std::int64_t start, std::int64_t length) const {
  return lockstep::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int dim, std::int64_t index) const { return lockstep::select(*this, dim, index); }

Tensor Tensor::to(Device device, CopyOptions options) const {
  check(defined(), "to: undefined tensor");
  if (impl_->kind == Kind::cut) {
    // A module may move its input to the one device where it is.
    const bool is_there = std::ranges::all_of(impl_->parts, [&](const Array& part) { return part.device() == device; });
    check(is_there, "to: {} is cut over the batch, expected it in one piece: gather() it", describe());
    return *this;
  }
  if (impl_->kind == Kind::whole && this->device() == device) return *this;
  return moved("to", *this, impl_->array(), ops::to_device(impl_->array(), device, options));
}

Tensor Tensor::pin(Device device) const {
  check(defined() && impl_->kind == Kind::whole, "pin: the tensor is {}, expected host memory", describe());
  return moved("pin", *this, impl_->array(), ops::pin(impl_->array(), device));
}

void Tensor::copy_from(const Tensor& x, CopyOptions options) const {
  if (grad_enabled()) {
    check(!x.requires_grad(),
          "copy_from: {} needs a gradient, but a copy in place records none: detach() it, or use to()", x);
    check(!(*this)->grad || !(*this)->grad->node,
          "copy_from: {} has a history, and its gradient would be that of the old elements: detach() it", describe());
  }
  check(defined() && x.defined(), "copy_from: undefined tensor");
  if (ForwardTrace* const trace = ForwardTrace::current()) trace->write(*this, x);
  if (impl_->kind == Kind::cut) {
    check(x->kind == Kind::cut && x->cut == impl_->cut && same_placement(x->at, impl_->at),
          "copy_from: {} is cut over the batch, but {} is not cut in the same way", describe(), x);
    for (std::size_t s = 0; s < impl_->parts.size(); ++s) ops::copy_(x->parts[s], impl_->parts[s], options);
    return;
  }
  // Writes all replicas.
  for (const Array& part : impl_->parts) ops::copy_(x->array(), part, options);
}

void Tensor::check_in_place(std::string_view what) const {
  check(defined(), "{}: undefined tensor", what);
  check(!grad_enabled() || !requires_grad(),
        "{}: {} requires a gradient, but a write in place records none: detach() it, or write under a NoGradGuard",
        what, describe());
}

const Tensor& Tensor::fill_(const Scalar& value) const {
  check_in_place("fill_");
  copy_from(full_like(*this, value));
  return *this;
}
const Tensor& Tensor::copy_(const Tensor& x, CopyOptions options) const {
  check_in_place("copy_");
  check(x.defined(), "copy_: undefined tensor");
  copy_from(x.shape() == shape() ? x : lockstep::expand(x, shape()), options);
  return *this;
}
const Tensor& Tensor::zero_() const { return fill_(0); }
const Tensor& Tensor::add_(const Tensor& b) const {
  check_in_place("add_");
  copy_from(kept_type(*this, *this + b));
  return *this;
}
const Tensor& Tensor::add_(const Scalar& b) const {
  check_in_place("add_");
  copy_from(kept_type(*this, *this + b));
  return *this;
}
const Tensor& Tensor::sub_(const Tensor& b) const {
  check_in_place("sub_");
  copy_from(kept_type(*this, *this - b));
  return *this;
}
const Tensor& Tensor::sub_(const Scalar& b) const {
  check_in_place("sub_");
  copy_from(kept_type(*this, *this - b));
  return *this;
}
const Tensor& Tensor::mul_(const Tensor& b) const {
  check_in_place("mul_");
  copy_from(kept_type(*this, *this * b));
  return *this;
}
const Tensor& Tensor::mul_(const Scalar& b) const {
  check_in_place("mul_");
  copy_from(kept_type(*this, *this * b));
  return *this;
}
const Tensor& Tensor::div_(const Tensor& b) const {
  check_in_place("div_");
  copy_from(kept_type(*this, *this / b));
  return *this;
}
const Tensor& Tensor::div_(const Scalar& b) const {
  check_in_place("div_");
  copy_from(kept_type(*this, *this / b));
  return *this;
}

Tensor Tensor::cpu() const { return to(kHost); }

Tensor Tensor::to(DType dtype) const { return cast(*this, dtype); }

Tensor Tensor::to(Layout layout) const {
  return lift_view("reorder", place_as("to", *this), *this, [layout](const Arrays& in) -> Lifted {
    return {ops::to_layout(in[0], layout), [](const PartPass&, const Array& dy) -> Arrays { return {dy}; }};
  });
}

void GradMeta::accumulate(const BackwardPass&, Gradient) {}
Tensor GradMeta::grad() const { return hooks ? hooks->retained : Tensor(); }
void GradMeta::zero_grad() {
  if (hooks) hooks->retained = {};
}

BackwardInputs::BackwardInputs(std::initializer_list<Tensor> leaves) : set_(true), leaves_(leaves) {}

}  // namespace lockstep
