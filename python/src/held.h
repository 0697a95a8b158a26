// Objects of Python that objects of C++ hold: functions, models, data sets.
//
// Python's collector finds cycles by the references between objects of Python. It would not see that of an object of
// C++ to a function, and a model whose parameter has a hook that refers to the model would live forever. So what is
// made for an object of Python (`owner`) tells it what it holds:
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

// A reference that any thread may copy and drop. After the interpreter's end the object stays: the memory goes with the
// process.
class Held {
 public:
  // With the interpreter lock.
  explicit Held(py::object object);
  // With the lock. Throws Error if the collector has taken the object away together with its owner.
  py::object get() const;

  struct Cell {
    py::object object;
  };

 private:
  struct Reference;
  std::shared_ptr<Reference> reference_;
};

// While it lives, it notes what this thread holds anew.
class Keeping {
 public:
  Keeping();
  ~Keeping();
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
  // What has been noted belongs to `owner`, an object with a __dict__, which lives as long as what holds it.
  void by(py::handle owner) const;

 private:
  friend class Held;
  Keeping* const outer_;
  std::vector<std::shared_ptr<Held::Cell>> noted_;
};

// def_keeping(c, [](const py::function& f) { return new Thing(f); }, "f"_a): an __init__() whose object owns what the
// function holds. The class has py::dynamic_attr().
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

// For all classes that exist. Before pybind11 2.12, the collector sees an object while it is destroyed. Many
// destructors release the lock, and the collector of another thread would destroy the object once more.
void untrack_what_is_destroyed();

}  // namespace lockstep::python
