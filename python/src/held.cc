#include "held.h"

#include <utility>

#include "interpreter_lock.h"
#include "lockstep/base/error.h"

namespace lockstep::python {
namespace {

thread_local Keeping* innermost = nullptr;

constexpr const char* kKept = "_lockstep_kept";

// The collector's view of a cell: one object for each cell.
struct Kept {
  std::shared_ptr<Held::Cell> cell;
};

Kept* kept_of(PyObject* self) {
  return static_cast<Kept*>(reinterpret_cast<py::detail::instance*>(self)->get_value_and_holder().value_ptr());
}

void clear_cell(Held::Cell& cell) { const py::object dropped = std::move(cell.object); }

extern "C" int traverse_kept(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (const Kept* const kept = kept_of(self)) Py_VISIT(kept->cell->object.ptr());
  return 0;
}

extern "C" int clear_kept(PyObject* self) {
  if (const Kept* const kept = kept_of(self)) clear_cell(*kept->cell);
  return 0;
}

// Returns pybind11's dealloc, which all classes share.
destructor common_dealloc() {
  return reinterpret_cast<PyTypeObject*>(py::detail::get_internals().instance_base)->tp_dealloc;
}

extern "C" void dealloc_untracked(PyObject* self) {
  PyObject_GC_UnTrack(self);
  common_dealloc()(self);
}

}  // namespace

// Shared by all copies of a Held.
struct Held::Reference {
  explicit Reference(py::object object) : cell(std::make_shared<Cell>(Cell{std::move(object)})) {}
  ~Reference() {
    if (Py_IsInitialized() != 0) {
      try {
        const WithLock lock;
        clear_cell(*cell);
        return;
      } catch (const Error&) {  // the interpreter is ending
      }
    }
    (void)new std::shared_ptr<Cell>(std::move(cell));  // never freed
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  std::shared_ptr<Cell> cell;
};

Held::Held(py::object object) : reference_(std::make_shared<Reference>(std::move(object))) {
  if (innermost != nullptr) innermost->noted_.push_back(reference_->cell);
}

py::object Held::get() const {
  py::object object = reference_->cell->object;
  check(static_cast<bool>(object),
        "a function of the program is called after the end of the object that it belongs to");
  return object;
}

Keeping::Keeping() : outer_(std::exchange(innermost, this)) {}
Keeping::~Keeping() { innermost = outer_; }

void Keeping::by(py::handle owner) const {
  if (noted_.empty()) return;
  const py::dict attributes = owner.attr("__dict__");
  py::list all;
  if (attributes.contains(kKept)) {
    for (const py::handle earlier : py::list(attributes[kKept]))
      if (earlier.cast<const Kept&>().cell->object) all.append(earlier);
  }
  for (const std::shared_ptr<Held::Cell>& cell : noted_) all.append(py::cast(Kept{cell}));
  attributes[kKept] = all;
}

void add_held(py::module_& m) {
  py::class_<Kept>(m, "_Kept", py::custom_type_setup([](PyHeapTypeObject* heap_type) {
                     PyTypeObject& type = heap_type->ht_type;
                     type.tp_flags |= Py_TPFLAGS_HAVE_GC;
                     type.tp_traverse = &traverse_kept;
                     type.tp_clear = &clear_kept;
                   }));
}

void untrack_what_is_destroyed() {
  for (const auto& [type, bases] : py::detail::get_internals().registered_types_py) {
    const bool own = py::str(py::handle(reinterpret_cast<PyObject*>(type)).attr("__module__"))
                         .cast<std::string>()
                         .starts_with("lockstep");
    if (own && PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC) != 0 && type->tp_dealloc == common_dealloc()) {
      type->tp_dealloc = &dealloc_untracked;
    }
  }
}

}  // namespace lockstep::python
