#include "lockstep/autograd/dlpack.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/autograd/dlpack_abi.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/ops/copy.h"
#include "lockstep/runtime/default_runtime.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

struct NamedType {
  DType dtype;
  std::uint8_t code, bits;
};
constexpr std::array<NamedType, 7> kTypes{{{DType::f32, kDLFloat, 32},
                                           {DType::f64, kDLFloat, 64},
                                           {DType::f16, kDLFloat, 16},
                                           {DType::bf16, kDLBfloat, 16},
                                           {DType::i64, kDLInt, 64},
                                           {DType::u8, kDLUInt, 8},
                                           {DType::boolean, kDLBool, 8}}};

// The stride of each axis, in elements.
std::vector<std::int64_t> strides_of(const Shape& shape, Layout layout) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.dim()));
  if (layout == Layout::channels_last) {
    return {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
  }
  std::int64_t step = 1;
  for (int i = shape.dim() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = step;
    step *= shape[i];
  }
  return strides;
}

// What a struct that was given to another library keeps alive.
struct Sent {
  Array array;
  std::vector<std::int64_t> shape, strides;
};

template <typename Managed>
Managed* send(const Tensor& x, bool copied) {
  const Array& array = x->array();
  auto sent = std::make_unique<Sent>(Sent{
      .array = array,
      .shape = {array.shape().sizes().begin(), array.shape().sizes().end()},
      .strides = strides_of(array.shape(), array.layout()),
  });
  auto managed = std::make_unique<Managed>();
  const Device device = array.device();
  const bool gpu = !device.is_host() && device.kind() == DeviceKind::cuda;
  const auto type = std::ranges::find(kTypes, array.dtype(), &NamedType::dtype);
  managed->dl_tensor = {.data = array.view().data,
                        .device = {.device_type = gpu ? kDLCUDA : kDLCPU,
                                   .device_id = gpu ? static_cast<std::int32_t>(state_of(device, "to_dlpack").gpu) : 0},
                        .ndim = array.shape().dim(),
                        .dtype = {.code = type->code, .bits = type->bits, .lanes = 1},
                        .shape = sent->shape.data(),
                        .strides = sent->strides.data(),
                        .byte_offset = 0};
  if constexpr (requires { managed->flags; }) {
    managed->version = {.major = 1, .minor = 0};
    managed->flags =
        (array.storage()->read_only != nullptr ? kDLFlagReadOnly : 0) | (copied ? kDLFlagIsCopied : std::uint64_t{0});
  }
  managed->manager_ctx = sent.release();
  managed->deleter = [](Managed* self) {
    if (self == nullptr) return;
    delete static_cast<Sent*>(self->manager_ctx);
    delete self;
  };
  return managed.release();
}

// x in plain or channels-last layout with its writes finished, and whether it is a copy.
std::pair<Tensor, bool> ready(const Tensor& x) {
  check(x.defined(), "to_dlpack: the tensor is undefined");
  check(!x.requires_grad(), "to_dlpack: the tensor requires a gradient, expected one without: detach() it");
  check(x->kind != Kind::cut, "to_dlpack: the tensor is cut over shards, expected one memory: gather() it");
  check(x->kind == Kind::whole, "to_dlpack: the tensor has a replica on each device, expected one: Parameter::data()");
  const bool copied = x->array().layout() == Layout::blocked16;
  const Tensor plain = copied ? Tensor(ops::to_layout(x->array(), Layout::plain)) : x;
  plain.wait();
  return {plain, copied};
}

struct Received {
  View view;
  bool gpu = false;
  std::int32_t gpu_index = 0;
};

Received view_of(const DLTensor& t) {
  check(t.ndim >= 0 && t.ndim <= Shape::kMaxDim, "from_dlpack: {} axes, expected at most {}", t.ndim, Shape::kMaxDim);
  check(t.ndim == 0 || t.shape != nullptr, "from_dlpack: no shape for {} axes", t.ndim);
  Received received;
  const auto axes = static_cast<std::size_t>(t.ndim);
  const std::vector<std::int64_t> dims(t.shape, t.shape + axes);
  for (const std::int64_t dim : dims) check(dim >= 0, "from_dlpack: an extent is {}, expected 0 or more", dim);
  const auto type = std::ranges::find_if(
      kTypes, [&](const NamedType& n) { return n.code == t.dtype.code && n.bits == t.dtype.bits; });
  check(type != kTypes.end() && t.dtype.lanes == 1,
        "from_dlpack: type code {} with {} bits and {} lanes, expected f32, f64, f16, bf16, i64, u8, or bool",
        t.dtype.code, t.dtype.bits, t.dtype.lanes);
  View& view = received.view;
  view = {.data = t.data, .dtype = type->dtype, .layout = Layout::plain, .shape = Shape(dims)};
  if (t.strides != nullptr && view.numel() > 0) {
    const std::vector<std::int64_t> strides(t.strides, t.strides + axes);
    const auto is = [&](Layout layout) {
      if (!layout_fits(layout, view.shape)) return false;
      const std::vector<std::int64_t> expected = strides_of(view.shape, layout);
      // The stride of an axis of one element means nothing.
      for (std::size_t i = 0; i < axes; ++i) {
        if (dims[i] != 1 && strides[i] != expected[i]) return false;
      }
      return true;
    };
    if (!is(Layout::plain)) {
      check(is(Layout::channels_last),
            "from_dlpack: strides {} of shape {}, expected row-major or channels-last elements without gaps: make it "
            "contiguous first",
            Shape(strides).str(), view.shape.str());
      view.layout = Layout::channels_last;
    }
  }
  check(view.data != nullptr || view.bytes() == 0, "from_dlpack: no address, expected {} bytes", view.bytes());
  if (view.data != nullptr) view.data = static_cast<std::byte*>(view.data) + t.byte_offset;
  check(reinterpret_cast<std::uintptr_t>(view.data) % item_size(view.dtype) == 0,
        "from_dlpack: address {} is not a multiple of the size of {}", view.data, name(view.dtype));
  const std::int32_t place = t.device.device_type;
  received.gpu = place == kDLCUDA;
  received.gpu_index = t.device.device_id;
  check(place == kDLCPU || place == kDLCUDAHost || place == kDLCUDA,
        "from_dlpack: device type {}, expected kDLCPU (1), kDLCUDA (2), or kDLCUDAHost (3)", place);
  return received;
}

Device gpu_of(std::int32_t index, Device device) {
  if (device.is_host()) {
    for (const Device d : default_runtime().devices()) {
      if (d.kind() == DeviceKind::cuda && state_of(d, "from_dlpack").gpu == index) return d;
    }
    fail("from_dlpack: the memory is on GPU {}, which is no device of the default Runtime: name its device", index);
  }
  check(device.kind() == DeviceKind::cuda && state_of(device, "from_dlpack").gpu == index,
        "from_dlpack: the memory is on GPU {}, expected it on {}", index, device.name());
  return device;
}

template <typename Managed>
Tensor receive(Managed* managed, Device device) {
  check(managed != nullptr, "from_dlpack: no tensor");
  const Received received = view_of(managed->dl_tensor);
  const auto free = [managed] {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  std::shared_ptr<Storage> storage;
  if (received.gpu) {
    const Device on = gpu_of(received.gpu_index, device);
    const std::shared_ptr<DeviceState> state = state_of(on, "from_dlpack").shared_from_this();
    // The deleter waits, because tasks name the resource and do not hold the memory.
    storage.reset(new Storage(), [free, state](Storage* s) {
      state->engine->wait_unused(s->resource);
      delete s;
      free();
    });
    storage->device = on;
    storage->engine = state->engine;
    storage->resource = state->engine->make_resource();
  } else {
    check(device.is_host(), "from_dlpack: the memory is the host's, expected it on {}",
          device.is_host() ? "" : device.name());
    storage.reset(new Storage(), [free](Storage* s) {
      delete s;
      free();
    });
  }
  storage->data = received.view.data;
  storage->bytes = received.view.bytes();
  storage->foreign = true;
  if constexpr (requires { managed->flags; }) {
    if ((managed->flags & kDLFlagReadOnly) != 0) {
      storage->read_only = "from_dlpack: the memory must not be written, expected memory that may be, or a copy of it";
    }
  }
  return Tensor(Array(std::move(storage), received.view));
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& x) {
  const auto [plain, copied] = ready(x);
  check(plain->array().storage()->read_only == nullptr,
        "to_dlpack: the memory must not be written, which this form cannot say: use to_dlpack_versioned(), or copy it");
  return send<DLManagedTensor>(plain, copied);
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& x) {
  const auto [plain, copied] = ready(x);
  return send<DLManagedTensorVersioned>(plain, copied);
}

Tensor from_dlpack(DLManagedTensor* tensor, Device device) { return receive(tensor, device); }

Tensor from_dlpack(DLManagedTensorVersioned* tensor, Device device) {
  check(tensor == nullptr || tensor->version.major == 1, "from_dlpack: version {}.{}, expected 1.x",
        tensor == nullptr ? 0 : tensor->version.major, tensor == nullptr ? 0 : tensor->version.minor);
  return receive(tensor, device);
}

}  // namespace lockstep
