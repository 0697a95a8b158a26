#include "signatures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

namespace py = pybind11;

namespace lockstep::python {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls f(part) for the parts of `text` between commas outside of brackets and quotes, up to the bracket that closes
// the first one.
template <typename F>
void for_each_part(std::string_view text, const F& f) {
  int depth = 0;
  char quote = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote && text[i - 1] != '\\') quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{' || c == '<') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}' || (c == '>' && i > 0 && text[i - 1] != '-')) {
      if (--depth < 0) return f(trimmed(text.substr(begin, i - begin)));
    } else if (c == ',' && depth == 0) {
      f(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
}

}  // namespace

std::vector<Argument> arguments_of(std::string_view signature) {
  std::vector<Argument> all;
  const std::size_t open = signature.find('(');
  if (open == std::string_view::npos) return all;
  for_each_part(signature.substr(open + 1), [&](std::string_view part) {
    if (part.empty()) return;
    const std::size_t colon = part.find(':');
    if (part[0] == '*' || part == "/" || colon == std::string_view::npos) {
      all.push_back({std::string(part.substr(0, colon)), "", {}});
      return;
    }
    std::string_view type = trimmed(part.substr(colon + 1));
    std::optional<std::string> value;
    if (const std::size_t equal = type.find(" = "); equal != std::string_view::npos) {
      value = std::string(type.substr(equal + 3));
      type = type.substr(0, equal);
    }
    all.push_back({std::string(part.substr(0, colon)), std::string(type), value});
  });
  return all;
}

namespace {

using Call = PyObject* (*)(PyObject*, PyObject*, PyObject*);
Call dispatch = nullptr;  // pybind11's function

bool is_variadic(const Argument& a) { return a.name.starts_with('*') && a.name != "*"; }

// Returns the number of edits that turn one word into the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// One overload of a function, which can tell what is wrong with a call.
struct Form {
  std::vector<Argument> arguments;
  std::size_t positional = 0;  // number of arguments that may be positional
  bool takes_all_positions = false, takes_all_names = false;

  explicit Form(std::vector<Argument> all) {
    bool by_position = true;
    for (Argument& a : all) {
      if (a.name.starts_with("**")) {
        takes_all_names = true;
      } else if (a.name.starts_with('*')) {
        takes_all_positions = takes_all_positions || is_variadic(a);
        by_position = false;
      } else if (a.name != "/") {
        positional += by_position;
        arguments.push_back(std::move(a));
      }
    }
  }
  const Argument* find(std::string_view name) const {
    const auto at = std::ranges::find(arguments, name, &Argument::name);
    return at == arguments.end() ? nullptr : &*at;
  }
};

// Returns true only if the type certainly does not take this object.
bool surely_wrong(const std::string& type, py::handle object) {
  if (object.is_none())
    return type.find("None") == std::string::npos && type.find("Optional") == std::string::npos && type != "object";
  const auto only = [&](std::initializer_list<std::string_view> types) {
    return std::ranges::find(types, type) != types.end();
  };
  const bool is_text = PyUnicode_Check(object.ptr()), is_number = PyNumber_Check(object.ptr()) != 0;
  if (only({"int", "float", "Optional[int]", "Optional[float]"})) {
    return is_text || !is_number || (type.find("int") != std::string::npos && PyFloat_Check(object.ptr()));
  }
  if (only({"str", "Optional[str]"})) return !is_text;
  if (only({"bool", "Optional[bool]"})) return !PyBool_Check(object.ptr());
  if (only({"lockstep.Tensor", "Tensor", "Optional[lockstep.Tensor]"})) {
    return !py::isinstance(object, py::module_::import("lockstep._core").attr("Tensor"));
  }
  if (only({"int | tuple[int, ...]", "int | tuple[int, ...] | None", "Size"})) {
    return is_text || PyFloat_Check(object.ptr()) || py::isinstance<py::dict>(object);
  }
  return false;
}

// Returns a type as Python's users write it.
std::string short_type(std::string type) {
  for (const std::string_view prefix : {"lockstep._core.", "lockstep."}) {
    for (std::size_t at = type.find(prefix); at != std::string::npos; at = type.find(prefix))
      type.erase(at, prefix.size());
  }
  if (type.starts_with("Optional[") && type.ends_with("]")) type = type.substr(9, type.size() - 10) + " or None";
  return type;
}

struct Mistake {
  int weight;  // the form with the lightest mistake is the one that was meant
  std::string text;
};

Mistake mistake(const std::string& name, const Form& form, const py::tuple& args, const py::dict& named) {
  const auto positions = [](std::size_t n) { return fmt::format("{} positional argument{}", n, n == 1 ? "" : "s"); };
  for (const auto& [key, value] : named) {
    const auto word = py::cast<std::string>(key);
    if (form.takes_all_names || form.find(word)) continue;
    std::string nearest;
    for (const Argument& a : form.arguments) {
      if (distance(word, a.name) <= std::max<std::size_t>(1, word.size() / 3) &&
          (nearest.empty() || distance(word, a.name) < distance(word, nearest))) {
        nearest = a.name;
      }
    }
    return {4, fmt::format("{}() got an unexpected keyword argument '{}'{}", name, word,
                           nearest.empty() ? "" : fmt::format(". Did you mean '{}'?", nearest))};
  }
  if (args.size() > form.positional && !form.takes_all_positions) {
    const auto with_default = static_cast<std::size_t>(std::ranges::count_if(
        form.arguments.begin(), form.arguments.begin() + static_cast<std::ptrdiff_t>(form.positional),
        [](const Argument& a) { return a.value.has_value(); }));
    return {3, fmt::format("{}() takes {}{} but {} {} given", name,
                           with_default > 0 ? fmt::format("from {} to ", form.positional - with_default) : "",
                           positions(form.positional), args.size(), args.size() == 1 ? "was" : "were")};
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < form.arguments.size(); ++i) {
    const Argument& a = form.arguments[i];
    const bool by_name = named.contains(a.name.c_str()), by_position = i < args.size() && i < form.positional;
    if (by_name && by_position) return {3, fmt::format("{}() got multiple values for argument '{}'", name, a.name)};
    if (!by_name && !by_position && !a.value) missing.push_back(fmt::format("'{}'", a.name));
  }
  if (!missing.empty()) {
    const auto count = missing.size();
    std::string names = missing[0];
    for (std::size_t i = 1; i < count; ++i)
      names += (i + 1 < count ? ", " : count > 2 ? ", and " : " and ") + missing[i];
    return {2, fmt::format("{}() missing {} required positional argument{}: {}", name, count, count == 1 ? "" : "s",
                           names)};
  }
  for (std::size_t i = 0; i < form.arguments.size(); ++i) {
    const Argument& a = form.arguments[i];
    const bool by_position = i < args.size() && i < form.positional;
    if (!by_position && !named.contains(a.name.c_str())) continue;
    const py::object value = by_position ? py::object(args[i]) : py::object(named[a.name.c_str()]);
    if (!surely_wrong(a.type, value)) continue;
    return {1, fmt::format("{}(): argument '{}' (position {}) must be {}, not {}", name, a.name, i + 1,
                           short_type(a.type), Py_TYPE(value.ptr())->tp_name)};
  }
  return {0, ""};
}

// Returns the types of the arguments that were given.
std::string types_of(const py::tuple& args, const py::dict& named) {
  std::string all;
  for (const py::handle x : args) all += fmt::format("{}{}", all.empty() ? "" : ", ", Py_TYPE(x.ptr())->tp_name);
  for (const auto& [key, value] : named) {
    all += fmt::format("{}{}={}", all.empty() ? "" : ", ", py::cast<std::string>(key), Py_TYPE(value.ptr())->tp_name);
  }
  return all;
}

// Rewrites pybind11's error, which lists all overloads and prints the arguments.
std::string explained(const std::string& text, py::tuple args, const py::dict& named) {
  std::string name = text.substr(0, text.find('('));
  const bool constructs = text.find("incompatible constructor") != std::string::npos;
  if (constructs && !args.empty()) name = Py_TYPE(py::handle(args[0]).ptr())->tp_name;
  if (const auto dot = name.rfind('.'); dot != std::string::npos) name = name.substr(dot + 1);
  std::vector<Form> forms;
  std::string listed;
  for (int number = 1;; ++number) {
    const auto at = text.find(fmt::format("\n    {}. ", number));
    if (at == std::string::npos) break;
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    std::vector<Argument> all = arguments_of(line);
    if (!constructs && !all.empty() && all[0].name == "self") {
      all.erase(all.begin());
      if (number == 1 && !args.empty()) args = py::tuple(args[py::slice(1, static_cast<py::ssize_t>(args.size()), 1)]);
    }
    std::string shown;
    for (const Argument& a : all) {
      shown += (shown.empty() ? "" : ", ") + a.name + (a.type.empty() ? "" : ": " + short_type(a.type));
      if (a.value) shown += " = " + *a.value;
    }
    listed += fmt::format("\n  {}({})", name, shown);
    forms.emplace_back(std::move(all));
  }
  if (constructs && !args.empty()) args = py::tuple(args[py::slice(1, static_cast<py::ssize_t>(args.size()), 1)]);
  std::optional<Mistake> lightest;
  for (const Form& form : forms) {
    Mistake here = mistake(name, form, args, named);
    if (!lightest || here.weight < lightest->weight) lightest = std::move(here);
  }
  if (lightest && !lightest->text.empty() && (forms.size() == 1 || lightest->weight > 1)) return lightest->text;
  return fmt::format("{}(): found arguments ({}), expected:{}", name, types_of(args, named), listed);
}

extern "C" PyObject* call_explained(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* const result = dispatch(self, args, kwargs);
  if (result != nullptr || PyErr_ExceptionMatches(PyExc_TypeError) == 0) return result;
  try {
    py::error_scope raised;
    PyErr_NormalizeException(&raised.type, &raised.value, &raised.trace);
    const std::string text = py::str(py::handle(raised.value));
    if (text.find("(): incompatible ") == std::string::npos) return nullptr;
    const auto named = kwargs != nullptr ? py::reinterpret_borrow<py::dict>(kwargs) : py::dict();
    const auto better = py::str(explained(text, py::reinterpret_borrow<py::tuple>(args), named));
    py::handle(raised.value).attr("args") = py::make_tuple(better);
  } catch (py::error_already_set& e) {
    e.discard_as_unraisable("the message of a TypeError");
  }
  return nullptr;
}

// Returns a default that inspect.signature() can read: it takes only literals.
std::string literal(const std::string& value) {
  static const std::unordered_set<std::string> words{"None", "True", "False"};
  const bool plain = words.contains(value) || value.find_first_not_of("+-.0123456789e") == std::string::npos ||
                     (value.size() > 1 && value.front() == '\'' && value.back() == '\'' && value.size() < 40) ||
                     value == "()" || value == "[]";
  return plain ? value : "...";
}

// Returns a signature such as `(input, dim=0, *, dtype=None)`.
std::string text_signature(const std::vector<Argument>& arguments) {
  std::string text;
  for (const Argument& a : arguments) {
    text += (text.empty() ? "" : ", ") + a.name;
    if (a.value) text += "=" + literal(*a.value);
  }
  return "(" + text + ")";
}

bool has_literals(const std::vector<Argument>& arguments) {
  return std::ranges::none_of(arguments, [](const Argument& a) { return a.value && literal(*a.value) == "..."; });
}

void describe(PyObject* function) {
  PyMethodDef& def = *reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  if (def.ml_flags != (METH_VARARGS | METH_KEYWORDS) || PyCFunction_GET_SELF(function) == nullptr ||
      !PyCapsule_CheckExact(PyCFunction_GET_SELF(function))) {
    return;
  }
  const auto call = reinterpret_cast<Call>(reinterpret_cast<void (*)()>(def.ml_meth));
  if (call == &call_explained || (dispatch != nullptr && call != dispatch)) return;
  dispatch = call;
  def.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_explained));
  if (def.ml_doc == nullptr) return;
  std::string text = def.ml_doc;
  const std::string name = def.ml_name;
  const std::size_t line = std::min(text.find('\n'), text.size());
  const bool overloaded = text.find("Overloaded function.\n") != std::string::npos;
  // pybind11 writes the signature, an empty line, and the text; or the signatures of all overloads, with their texts.
  if (const auto comment = documentation(name); !comment.empty()) {
    const bool has_text = text.find_first_not_of('\n', line) != std::string::npos;
    while (text.ends_with('\n')) text.pop_back();
    if (overloaded || !has_text) text += "\n\n" + std::string(comment);
  }
  const auto arguments = arguments_of(text.substr(0, line));
  if (text.starts_with(name + "(") && has_literals(arguments)) {
    text = fmt::format("{}{}\n--\n\n{}", name, text_signature(arguments), text);
  }
  // Uses malloc, because pybind11 frees the text.
  std::free(const_cast<char*>(def.ml_doc));  // NOLINT
  def.ml_doc = strdup(text.c_str());
}

void describe_in(py::handle owner, std::unordered_set<PyObject*>& seen) {
  const auto entries = py::dict(owner.attr("__dict__"));
  for (const auto& [key, value] : entries) {
    PyObject* object = value.ptr();
    if (PyInstanceMethod_Check(object) != 0) object = PyInstanceMethod_GET_FUNCTION(object);
    if (Py_TYPE(object) == &PyStaticMethod_Type) continue;
    if (PyCFunction_Check(object) != 0) {
      describe(object);
    } else if ((PyType_Check(object) != 0 || PyModule_Check(object) != 0) && seen.insert(object).second) {
      if (PyType_Check(object) != 0 &&
          !py::str(py::handle(object).attr("__module__")).cast<std::string>().starts_with("lockstep")) {
        continue;
      }
      describe_in(object, seen);
      if (PyType_Check(object) == 0) continue;
      const py::object own = py::handle(object).attr("__dict__").attr("get")("__doc__");
      const auto comment = documentation(py::cast<std::string>(py::handle(object).attr("__name__")));
      if ((own.is_none() || py::str(own).cast<std::string>().empty()) && !comment.empty()) {
        py::handle(object).attr("__doc__") = py::str(comment.data(), comment.size());
      }
    }
  }
}

}  // namespace

void describe_functions(py::handle module) {
  std::unordered_set<PyObject*> seen{module.ptr()};
  describe_in(module, seen);
}

}  // namespace lockstep::python
