#include "numpy.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string>

#include "deferred_release.h"
#include "interruptible.h"
#include "lockstep/autograd/dlpack_abi.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/tensor/storage.h"
#include "views.h"

namespace lockstep::python {
namespace {

constexpr const char* kConverted =
    "from_numpy: the tensor is a converted copy of an array, so that the array would not change: write to a clone()";

constexpr const char* kCopied = "the tensor is a copy where PyTorch has a view: write to a clone()";

struct BufferType {
  enum Kind { whole, natural, floating } kind = whole;
  std::size_t bytes = 0;
  std::optional<DType> dtype;  // for elements of the same type
};

BufferType type_of(const Py_buffer& buffer) {
  std::string_view format = buffer.format == nullptr ? "B" : buffer.format;
  const bool swapped = format.starts_with(std::endian::native == std::endian::little ? '>' : '<');
  if (format.find_first_of("<>=@|!") == 0) format.remove_prefix(1);
  check(format.size() == 1 && std::string_view("?bBhHiIlLqQefd").find(format[0]) != std::string_view::npos && !swapped,
        "tensor: an array of type '{}', expected numbers in the machine's order: real, whole, or bool",
        buffer.format == nullptr ? "B" : buffer.format);
  BufferType type{.bytes = static_cast<std::size_t>(buffer.itemsize)};
  const char c = format[0];
  if (c == '?') {
    type.kind = BufferType::natural;
    type.dtype = DType::boolean;
  } else if (c == 'e' || c == 'f' || c == 'd') {
    type.kind = BufferType::floating;
    type.dtype = c == 'e' ? DType::f16 : c == 'f' ? DType::f32 : DType::f64;
  } else if (c >= 'A' && c <= 'Z') {
    type.kind = BufferType::natural;
    if (type.bytes == 1) type.dtype = DType::u8;
  } else {
    if (type.bytes == 8) type.dtype = DType::i64;
  }
  return type;
}

std::int64_t whole_number(const char* from, const BufferType& type) {
  const auto read = [from]<typename T>(T value) {
    std::memcpy(&value, from, sizeof(T));
    return static_cast<std::int64_t>(value);
  };
  const bool natural = type.kind == BufferType::natural;
  switch (type.bytes) {
    case 1: return natural ? read(std::uint8_t{}) : read(std::int8_t{});
    case 2: return natural ? read(std::uint16_t{}) : read(std::int16_t{});
    case 4: return natural ? read(std::uint32_t{}) : read(std::int32_t{});
    default: break;
  }
  const std::int64_t value = read(std::int64_t{});
  check(!natural || value >= 0, "tensor: an element is {}, expected it within int64",
        static_cast<std::uint64_t>(value));
  return value;
}

// Copies the elements in plain order.
void copy_elements(const Py_buffer& buffer, const BufferType& type, char* to) {
  const int axes = buffer.ndim;
  std::vector<Py_ssize_t> at(static_cast<std::size_t>(axes));
  const std::size_t size = type.dtype ? type.bytes : sizeof(std::int64_t);
  const auto offset = [&] {
    Py_ssize_t sum = 0;
    for (int i = 0; i < axes; ++i) sum += at[static_cast<std::size_t>(i)] * buffer.strides[i];
    return sum;
  };
  const Py_ssize_t count = buffer.len / buffer.itemsize;
  for (Py_ssize_t n = 0; n < count; ++n) {
    const char* const from = static_cast<const char*>(buffer.buf) + offset();
    if (type.dtype) {
      std::memcpy(to, from, size);
    } else {
      const std::int64_t value = whole_number(from, type);
      std::memcpy(to, &value, size);
    }
    to += size;
    for (int i = axes - 1; i >= 0; --i) {
      auto& position = at[static_cast<std::size_t>(i)];
      if (++position < buffer.shape[i]) break;
      position = 0;
    }
  }
}

Tensor tensor_of_buffer(py::handle source, bool copied) {
  struct Buffer {
    Py_buffer view{};
    bool held = false;
    ~Buffer() {
      if (held) PyBuffer_Release(&view);
    }
  };
  Buffer buffer;
  if (PyObject_GetBuffer(source.ptr(), &buffer.view, PyBUF_RECORDS_RO) != 0) throw py::error_already_set();
  buffer.held = true;
  const Py_buffer& view = buffer.view;
  const BufferType type = type_of(view);
  const std::vector<std::int64_t> extents(view.shape, view.shape + view.ndim);
  const Shape shape{std::span<const std::int64_t>(extents)};
  const bool plain = PyBuffer_IsContiguous(&view, 'C') != 0;
  const bool aligned = reinterpret_cast<std::uintptr_t>(view.buf) % static_cast<std::uintptr_t>(view.itemsize) == 0;
  if (!copied && type.dtype && plain && aligned && view.len > 0) {
    // Keeps the array itself, not its buffer, because NumPy arrays do not move.
    PyObject* const keep = PyMemoryView_FromObject(source.ptr());
    if (keep == nullptr) throw py::error_already_set();
    const Tensor shared = from_blob_of(view.buf, shape, *type.dtype, view.readonly == 0,
                                       [keep](const void*) { release_later([keep] { Py_DECREF(keep); }); });
    shared->array().storage()->read_at_once = true;
    return shared;
  }
  const Tensor result = Tensor::host(shape, type.dtype.value_or(DType::i64));
  auto* const to = static_cast<char*>(result->array().view().data);
  if (view.len > 0) {
    if (type.dtype && plain) {
      std::memcpy(to, view.buf, static_cast<std::size_t>(view.len));
    } else {
      copy_elements(view, type, to);
    }
  }
  if (!copied) result->array().storage()->read_only = kConverted;
  return result;
}

// Memory that numpy.asarray() reads; it lives as long as the array.
struct ArrayMemory {
  Tensor tensor;
  bool read_only = false;
};

// Prepares the memory of x, which is in host memory, for another library, which may write it now or later.
void show_to_others(const Tensor& x) {
  const WithoutLock waiting;
  Storage& memory = *x->array().storage();
  memory.read_at_once = true;
  memory.wait_writable(false);
}

const char* typestr(DType dtype) {
  switch (dtype) {
    case DType::f32: return "<f4";
    case DType::f64: return "<f8";
    case DType::f16: return "<f2";
    case DType::i64: return "<i8";
    case DType::u8: return "|u1";
    case DType::boolean: return "|b1";
    case DType::bf16: break;
  }
  throw py::type_error("numpy: NumPy has no bfloat16, expected another type: to(lockstep.float32)");
}

// `is_copy`: x is a copy of another tensor, which would not see a write.
py::object numpy_of(const Tensor& x, bool force, bool is_copy) {
  check(x.defined(), "numpy: undefined tensor");
  check(force || !(x.requires_grad() && grad_enabled()),
        "numpy: the tensor requires a gradient, which an array does not have: use detach().numpy()");
  const bool here = x.device().kind() == DeviceKind::cpu;
  check(force || here, "numpy: the tensor is on {}, expected host memory: use cpu()", x.device());
  const char* const type = typestr(x.dtype());
  wait_for(x);
  ArrayMemory memory{.tensor = x.detach()};
  const bool has_replicas = x->parts.size() > 1;
  if (!x.device().is_host() || has_replicas || x.layout() != Layout::plain) {
    // Copies: later tasks may write a device's memory at any time, and a write to the array would be lost.
    const WithoutLock waiting;
    const Tensor host = memory.tensor.to_host().contiguous();
    memory = {.tensor = has_replicas ? clone(host) : host, .read_only = true};
    memory.tensor.wait();
  }
  const Array array = memory.tensor->array();
  memory.read_only |= is_copy || array.storage()->read_only != nullptr;
  if (!memory.read_only) show_to_others(memory.tensor);
  py::dict interface;
  interface["shape"] = py::tuple(size_object(x.shape()));
  interface["typestr"] = type;
  // NumPy rejects a null address, even for an empty array.
  static const double nothing = 0;
  const void* const data = x.numel() > 0 ? array.view().data : &nothing;
  interface["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(data), memory.read_only);
  interface["version"] = 3;
  py::object owner = py::cast(std::move(memory));
  owner.attr("__array_interface__") = interface;
  return py::module_::import("numpy").attr("asarray")(owner);
}

// Names of the capsules that DLPack hands over.
constexpr const char *kCapsule = "dltensor", *kVersioned = "dltensor_versioned", *kUsed = "used_dltensor",
                     *kUsedVersioned = "used_dltensor_versioned";

// Implements from_dlpack(). Releases the memory with the interpreter lock, because NumPy's deleter needs it.
template <typename Managed>
Tensor received(Managed* theirs) {
  auto ours = std::make_unique<Managed>(*theirs);
  ours->manager_ctx = theirs;
  ours->deleter = [](Managed* self) {
    auto* const held = static_cast<Managed*>(self->manager_ctx);
    delete self;
    release_later([held] {
      if (held->deleter != nullptr) held->deleter(held);
    });
  };
  const Tensor x = from_dlpack(ours.get());
  (void)ours.release();
  x->array().storage()->read_at_once = true;
  return x;
}

Tensor tensor_of_capsule(py::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    auto* const managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    const Tensor x = received(managed);
    PyCapsule_SetName(capsule.ptr(), kUsedVersioned);
    return x;
  }
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  if (managed == nullptr) throw py::error_already_set();
  const Tensor x = received(managed);
  PyCapsule_SetName(capsule.ptr(), kUsed);
  return x;
}

}  // namespace

bool is_array(py::handle source) {
  PyObject* const object = source.ptr();
  if (PyBytes_Check(object) || PyUnicode_Check(object) || PyByteArray_Check(object)) return false;
  return PyObject_CheckBuffer(object) != 0 || PyObject_HasAttrString(object, "__dlpack__") != 0 ||
         PyObject_HasAttrString(object, "__array__") != 0;
}

Tensor tensor_of_array(py::handle source, bool copied) {
  release_now();
  if (PyObject_CheckBuffer(source.ptr()) != 0) return tensor_of_buffer(source, copied);
  if (py::hasattr(source, "__dlpack__")) {
    const Tensor x = tensor_of_capsule(source.attr("__dlpack__")());
    return copied ? clone(x) : x;
  }
  return tensor_of_buffer(source.attr("__array__")(), copied);
}

void add_numpy(py::module_& m, TensorClass& tensor) {
  py::class_<ArrayMemory>(m, "_Memory", py::dynamic_attr());
  m.def("_read_only", [](const Tensor& x) {
    for (const Array& part : x->parts) part.storage()->read_only = kCopied;
    return x;
  });
  m.def(
      "from_numpy", [](const py::object& array) { return tensor_of_array(array, false); }, "array"_a,
      "A tensor of the array's memory. An array of another type, or that is not contiguous, is converted: such a "
      "tensor must not be written.");
  tensor.def(
      "numpy", [](const TensorObject& self, bool force) { return numpy_of(self.cast<Tensor>(), force, is_copy(self)); },
      py::kw_only(), "force"_a = false,
      "An array of the memory of a tensor in host memory. Waits. That of a tensor on devices, and of a view that is "
      "not contiguous, is a copy that must not be written.");
  tensor.def(
      "__array__",
      [](const TensorObject& self, const py::object& dtype, const py::object& copy) -> py::object {
        py::object array = numpy_of(self.cast<Tensor>(), false, is_copy(self));
        const bool converts = !dtype.is_none() && !py::object(array.attr("dtype")).equal(dtype);
        if (converts) return array.attr("astype")(dtype);
        return !copy.is_none() && copy.cast<bool>() ? array.attr("copy")() : array;
      },
      "dtype"_a = py::none(), "copy"_a = py::none());
  tensor.attr("__array_priority__") = 1000;

  tensor.def("__dlpack_device__", [](const Tensor& x) {
    const bool gpu = x.device().kind() == DeviceKind::cuda;
    return py::make_tuple(gpu ? 2 : 1, gpu ? x.device().index() : 0);
  });
  tensor.def(
      "__dlpack__",
      [](const Tensor& tensor, const py::object&, const py::object& max_version, const py::object&, const py::object&) {
        wait_for(tensor);
        // Copies the memory of a CPU device, as numpy() does.
        const Tensor x =
            tensor.device().kind() == DeviceKind::cpu && !tensor.device().is_host() ? tensor.to_host() : tensor;
        if (x.device().is_host()) show_to_others(x);
        if (!max_version.is_none() && py::object(max_version[py::int_(0)]).cast<int>() >= 1) {
          return py::reinterpret_steal<py::object>(
              PyCapsule_New(to_dlpack_versioned(x), kVersioned, [](PyObject* capsule) {
                if (PyCapsule_IsValid(capsule, kVersioned) == 0) return;
                auto* const unused = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
                unused->deleter(unused);
              }));
        }
        return py::reinterpret_steal<py::object>(PyCapsule_New(to_dlpack(x), kCapsule, [](PyObject* capsule) {
          if (PyCapsule_IsValid(capsule, kCapsule) == 0) return;
          auto* const unused = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
          unused->deleter(unused);
        }));
      },
      py::kw_only(), "stream"_a = py::none(), "max_version"_a = py::none(), "dl_device"_a = py::none(),
      "copy"_a = py::none(), "For other libraries: the tensor's memory as a capsule. Waits.");
  m.def(
      "from_dlpack",
      [](const py::object& source) {
        return tensor_of_capsule(PyCapsule_CheckExact(source.ptr()) != 0 ? source : source.attr("__dlpack__")());
      },
      "ext_tensor"_a, "A tensor of another library's memory: of an object with __dlpack__(), or of its capsule.");
}

}  // namespace lockstep::python
