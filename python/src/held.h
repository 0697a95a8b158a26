// Objects of Python that objects of C++ hold: functions, models, data sets.
//
// Python's collector finds cycles through references between objects of Python, but not through objects of C++: a model
// whose parameter has a hook that refers to the model would live forever. So a C++ object that is made for an object of
// Python (`owner`) tells the owner what it holds:
//
//   Keeping keeping;
//   parameter.register_hook(...Held(function)...);
//   keeping.by(owner);  // the function is the owner's, for the collector
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

namespace lockstep::python {

namespace py = pybind11;

// A reference that any thread may copy and drop. After the interpreter's end the object stays, because the process is
// about to free all memory.
class Held {
 public:
  // Call it with the interpreter lock.
  explicit Held(py::object object);
  // Call it with the lock. Throws Error if the collector has destroyed the object together with its owner.
  py::object get() const;

  struct Cell {
    py::object object;
  };

 private:
  struct Reference;
  std::shared_ptr<Reference> reference_;
};

// While it exists, it records each new Held of this thread.
class Keeping {
 public:
  Keeping();
  ~Keeping();
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
  // Makes `owner` the owner of what was recorded. It must have a __dict__, and live as long as what holds the objects.
  void by(py::handle owner) const;

 private:
  friend class Held;
  Keeping* const outer_;
  std::vector<std::shared_ptr<Held::Cell>> noted_;
};

// def_keeping(c, [](const py::function& f) { return new Thing(f); }, "f"_a): defines an __init__() whose object owns
// the Held objects that the function makes. The class must have py::dynamic_attr().
template <typename Class, typename R, typename F, typename... Args, typename... Extra>
void def_keeping_as(Class& c, F make, R (F::*)(Args...) const, const Extra&... extra) {
  c.def(
      "__init__",
      [make](py::detail::value_and_holder& place, Args... args) {
        const Keeping keeping;
        place.value_ptr() = make(std::forward<Args>(args)...);
        place.type->init_instance(place.inst, nullptr);
        keeping.by(reinterpret_cast<PyObject*>(place.inst));
      },
      py::detail::is_new_style_constructor(), extra...);
}
template <typename Class, typename F, typename... Extra>
void def_keeping(Class& c, F make, const Extra&... extra) {
  def_keeping_as(c, make, &F::operator(), extra...);
}

void add_held(py::module_& m);

// Call it after all classes have been added. Before pybind11 2.12, the collector sees an object while it is destroyed.
// Many destructors release the lock, and the collector of another thread would destroy the object again.
void untrack_what_is_destroyed();

}  // namespace lockstep::python
