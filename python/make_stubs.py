"""Writes the stubs (.pyi) of the package, for editors and type checkers: make_stubs.py FOLDER

FOLDER has the package lockstep, with its module _core. Beside each module comes its stub, made of what the interpreter
knows: signatures, which pybind11 writes into docstrings, and docstrings. What no signature tells is typing.Any.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import sys
import textwrap
import types
import typing

BUILTINS = {"int", "float", "bool", "str", "bytes", "list", "dict", "tuple", "set", "None", "type", "complex", "slice"}
GENERIC = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set", "Type": "type"}
TYPING = {"Any", "Callable", "Sequence", "Iterable", "Iterator", "Mapping", "Literal", "Generator", "Self"}
# Those of object have the right types already.
SPECIAL = {"__doc__", "__module__", "__dict__", "__weakref__", "__slots__", "__repr__", "__str__", "__hash__",
           "__new__", "__annotations__", "__reduce__", "__reduce_ex__", "__class_getitem__", "__init_subclass__",
           "__match_args__", "__getstate__", "__dir__", "__setattr__", "__delattr__", "__abstractmethods__",
           "__parameters__", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__dataclass_fields__",
           "__dataclass_params__"}


class Types(ast.NodeTransformer):
    """Turns a type as pybind11 and annotations spell it into one that stubs understand. Names are full, because the
    package has functions called float, int, and bool."""

    def __init__(self, module, is_argument):
        self.module, self.is_argument = module, is_argument

    def name(self, text):
        short = text.rpartition(".")[2]
        if text == "None":
            return "None"
        if text in BUILTINS or text.startswith("builtins."):
            return f"builtins.{short}"
        if text == "Size":
            if self.is_argument:
                return "builtins.int | typing.Sequence[builtins.int]"
            return "lockstep.size.Size"
        if short in GENERIC:
            return "typing.Sequence" if self.is_argument and short == "List" else f"builtins.{GENERIC[short]}"
        if short in TYPING and not text.startswith("lockstep."):
            return f"typing.{short}"
        # A class of the package, by its full name, or as the module in hand knows it.
        for full in (text, f"{self.module.__name__}.{text}", f"lockstep._core.{text}"):
            found = find(full)
            if isinstance(found, type) and found.__module__.startswith("lockstep"):
                return f"{found.__module__}.{found.__qualname__}"
        return "typing.Any"

    def visit_Name(self, node):
        return ast.parse(self.name(node.id), mode="eval").body

    def visit_Attribute(self, node):
        return ast.parse(self.name(ast.unparse(node)), mode="eval").body

    def visit_Subscript(self, node):
        name = ast.unparse(node.value).rpartition(".")[2]
        if name == "Literal":
            return ast.parse(f"typing.Literal[{ast.unparse(node.slice)}]", mode="eval").body
        if name in ("Optional", "Union"):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            text = " | ".join(ast.unparse(self.visit(part)) for part in parts)
            text += " | None" if name == "Optional" else ""
            return ast.parse(text, mode="eval").body
        value = self.visit(node.value)
        if ast.unparse(value) == "typing.Any":
            return value
        return ast.Subscript(value, self.visit(node.slice), ast.Load())

    def visit_Constant(self, node):
        if isinstance(node.value, str):  # a type that is quoted
            return ast.parse(convert(node.value, self.module, self.is_argument), mode="eval").body
        return node


def find(full):
    """The object of a full name, or None."""
    module, _, name = full.rpartition(".")
    while module:
        if module in sys.modules:
            found = sys.modules[module]
            for part in name.split("."):
                found = getattr(found, part, None)
            return found
        module, _, last = module.rpartition(".")
        name = f"{last}.{name}"
    return None


def convert(text, module, is_argument):
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:  # a type of C++ that Python does not know
        return "typing.Any"
    return ast.unparse(Types(module, is_argument).visit(tree).body)


def annotation(value, module, is_argument):
    if value is inspect.Parameter.empty:
        return "typing.Any"
    if value is None or value is type(None):
        return "None"
    if isinstance(value, str):
        return convert(value, module, is_argument)
    if isinstance(value, type) and not typing.get_args(value):
        return convert(f"{value.__module__}.{value.__qualname__}", module, is_argument)
    return convert(str(value), module, is_argument)


def split(text):
    """Splits arguments at the commas outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{<":
            depth += 1
        elif c in ")]}" or c == ">" and text[i - 1] != "-":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [part for part in [*parts, text[begin:].strip()] if part]


def end_of_arguments(text):
    """The index of the bracket that closes the first one."""
    depth, quote = 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return i
    return -1


def pybind_signature(line, module, in_class):
    """(arguments, result) of a line such as `sum(input: Tensor, dim: int = 0) -> Tensor`, or None."""
    begin, end = line.find("("), end_of_arguments(line)
    if begin < 0 or end < 0:
        return None
    arguments, optional = [], False
    for i, part in enumerate(split(line[begin + 1:end])):
        if part in ("*", "/"):
            arguments.append(part)
            continue
        name, colon, rest = part.partition(":")
        name = name.strip()
        if in_class and i == 0:
            arguments.append("self")
            continue
        if name.startswith("*"):
            arguments.append(f"{name}: typing.Any")
            optional = optional or name.startswith("*") and not name.startswith("**")
            continue
        kind, equal, default = rest.rpartition(" = ") if " = " in rest else (rest, "", "")
        if not colon or not name.isidentifier():
            return None
        kind = convert(kind, module, True)
        if default == "None" and "None" not in kind and kind != "typing.Any":
            kind += " | None"
        arguments.append(f"{name}: {kind}" + (" = ..." if equal else ""))
    result = line[end + 1:].partition("->")[2].strip()
    return ", ".join(arguments), convert(result, module, False) if result else "typing.Any"


def python_signature(function, module, in_class=True):
    """The same of a function of Python."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "*args: typing.Any, **kwargs: typing.Any", "typing.Any"
    arguments, star = [], False
    for i, (name, p) in enumerate(signature.parameters.items()):
        if p.kind is p.KEYWORD_ONLY and not star:
            arguments.append("*")
            star = True
        if p.kind is p.VAR_POSITIONAL:
            star = True
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if i == 0 and in_class and name in ("self", "cls"):
            arguments.append(name)
            continue
        kind = annotation(p.annotation, module, True)
        if p.default is None and "None" not in kind and kind != "typing.Any":
            kind += " | None"
        arguments.append(f"{prefix}{name}: {kind}" + (" = ..." if p.default is not p.empty else ""))
    return ", ".join(arguments), annotation(signature.return_annotation, module, False)


class Stub:
    def __init__(self, module):
        self.module = module
        self.lines = []

    def write(self, depth, text=""):
        self.lines.append("    " * depth + text if text else "")

    def body(self, depth, doc):
        """The docstring of a function, or `...`."""
        doc = inspect.cleandoc(doc or "")
        if not doc or '"""' in doc or "\\" in doc:
            return " ..."
        return "\n" + textwrap.indent(f'"""{doc}"""', "    " * (depth + 1))

    def define(self, depth, name, function, decorators=()):
        doc = getattr(function, "__doc__", None) or ""
        in_class = depth > 0 and "@builtins.staticmethod" not in decorators
        found = []  # (arguments, result, docstring)
        if not inspect.isfunction(function):
            overloads = doc.split("Overloaded function.\n\n", 1)
            if len(overloads) == 2:
                parts, number = overloads[1], 1
                while parts.startswith(f"{number}. "):
                    part, more, parts = parts.partition(f"\n\n{number + 1}. ")
                    parts = f"{number + 1}. {parts}" if more else ""
                    line, _, text = part.partition("\n")
                    found.append((pybind_signature(line.partition(". ")[2], self.module, in_class), text))
                    number += 1
            else:
                line, _, text = doc.partition("\n")
                if "(" in line and "->" in line:
                    found.append((pybind_signature(line, self.module, in_class), text))
        if not found:
            found = [(python_signature(function, self.module, depth > 0), doc if inspect.isfunction(function) else "")]
        # Without types that Python knows, two overloads may be one.
        unique = []
        for signature, text in found:
            signature = signature or (
                ("self, " if in_class else "") + "*args: typing.Any, **kwargs: typing.Any", "typing.Any")
            if signature[0] not in [known[0] for known, _ in unique]:
                unique.append((signature, text))
        for (arguments, result), text in unique:
            if name in ("__init__", "__setitem__", "__delitem__"):
                result = "None"
            for decorator in decorators:
                self.write(depth, decorator)
            if len(unique) > 1:
                self.write(depth, "@typing.overload")
            body = " ...  # type: ignore" if name in ("__eq__", "__ne__") else self.body(depth, text)
            self.write(depth, f"def {name}({arguments}) -> {result}:{body}")

    def property(self, depth, name, value):
        line = (getattr(value.fget, "__doc__", None) or "").partition("\n")[0]
        if inspect.isfunction(value.fget):
            kind = python_signature(value.fget, self.module)[1]
        else:
            kind = (pybind_signature(line, self.module, True) or ("", "typing.Any"))[1]
        self.write(depth, "@builtins.property")
        self.write(depth, f"def {name}(self) -> {kind}: ...")
        if value.fset:
            self.write(depth, f"@{name}.setter")
            self.write(depth, f"def {name}(self, value: typing.Any) -> None: ...")

    def base(self, cls):
        if cls.__module__.startswith("lockstep"):
            return f"{cls.__module__}.{cls.__qualname__}"
        if cls is tuple:
            return "builtins.tuple[typing.Any, ...]"
        if cls in (list, set):
            return f"builtins.{cls.__name__}[typing.Any]"
        if cls is dict:
            return "builtins.dict[typing.Any, typing.Any]"
        if cls.__module__ == "builtins" and cls is not object and not cls.__name__.startswith("pybind11"):
            return f"builtins.{cls.__name__}"
        return None

    def define_class(self, depth, name, cls):
        bases = [base for base in map(self.base, cls.__bases__) if base]
        if cls.__name__ == "Size":
            bases = ["builtins.tuple[builtins.int, ...]"]
        self.write(depth, f"class {name}" + (f"({', '.join(bases)})" if bases else "") + ":")
        begin = len(self.lines)
        doc = inspect.cleandoc(vars(cls).get("__doc__") or "")
        if doc and '"""' not in doc and "\\" not in doc:
            self.write(0, textwrap.indent(f'"""{doc}"""', "    " * (depth + 1)))
        known = set(vars(cls))
        for key, value in vars(cls).items():
            if key in SPECIAL or key.startswith("_") and not key.startswith("__") or "pybind11" in key:
                continue
            if key.startswith("__") and not callable(value):
                continue
            if not key.isidentifier():
                continue
            if isinstance(value, property):
                self.property(depth + 1, key, value)
            elif isinstance(value, staticmethod):
                self.define(depth + 1, key, value.__func__, ["@builtins.staticmethod"])
            elif isinstance(value, classmethod):
                self.define(depth + 1, key, value.__func__, ["@builtins.classmethod"])
            elif isinstance(value, type):
                if value.__qualname__ == f"{cls.__qualname__}.{key}":
                    self.define_class(depth + 1, key, value)
                else:
                    self.write(depth + 1, f"{key}: typing.Any")
            elif callable(value) or type(value).__name__ == "instancemethod":
                self.define(depth + 1, key, getattr(value, "__func__", value))
            elif type(value) is cls:
                self.write(depth + 1, f"{key}: {cls.__module__}.{cls.__qualname__}")
            else:
                self.write(depth + 1, f"{key}: typing.Any")
        if takes_one_tensor(cls):
            self.write(depth + 1, "def __call__(self, input: lockstep.Tensor) -> lockstep.Tensor: ...")
        for key in attributes_of(cls):
            if key not in known and not key.startswith("_"):
                self.write(depth + 1, f"{key}: typing.Any")
        if len(self.lines) == begin:
            self.write(depth + 1, "...")

    def define_module(self):
        module = self.module
        doc = inspect.cleandoc(module.__doc__ or "")
        if doc and '"""' not in doc and "\\" not in doc:
            self.write(0, f'"""{doc}"""')
        imported = set()
        begin = len(self.lines)
        for name, value in list(vars(module).items()):
            # Bases of public classes may be private.
            if name.startswith("_") and name != "__version__" and not isinstance(value, type):
                continue
            if not name.isidentifier():
                continue
            origin = getattr(value, "__module__", None)
            if isinstance(value, types.ModuleType):
                if value.__name__ == f"{module.__name__}.{name}" or value.__name__.startswith("lockstep"):
                    parent, _, last = value.__name__.rpartition(".")
                    if parent:
                        self.write(0, f"from {parent} import {last} as {name}")
            elif isinstance(value, type) or inspect.isroutine(value):
                if not isinstance(origin, str) or not origin.startswith("lockstep"):
                    continue  # a name of another package
                known = value.__name__
                if origin != module.__name__ and getattr(sys.modules.get(origin), known, None) is value:
                    self.write(0, f"from {origin} import {known} as {name}")
                elif isinstance(value, type) and known != name:
                    self.write(0, f"{name} = {known}")
                elif isinstance(value, type):
                    self.define_class(0, name, value)
                else:
                    self.define(0, name, value)
            elif name == "__version__":
                self.write(0, "__version__: builtins.str")
            else:
                kind = type(value)
                if kind.__module__.startswith("lockstep"):
                    self.write(0, f"{name}: {kind.__module__}.{kind.__qualname__}")
                elif kind in (int, float, str, bool):
                    self.write(0, f"{name}: builtins.{kind.__name__}")
                elif kind.__module__ == "builtins" or kind is types.SimpleNamespace:
                    self.write(0, f"{name}: typing.Any")
        text = "\n".join(self.lines[begin:])
        for other in sys.modules:
            if other.startswith("lockstep") and f"{other}." in text and other != module.__name__:
                imported.add(other)
        imported.add(module.__name__)
        # A method that takes other arguments than its base's is PyTorch's way, and no error of a program.
        self.lines.insert(0, "# mypy: ignore-errors")
        begin += 1
        self.lines[begin:begin] = ["import builtins", "import typing", *(f"import {m}" for m in sorted(imported))]
        return "\n".join(self.lines) + "\n"


def takes_one_tensor(cls):
    """Whether it is a layer of the library that computes one tensor from one."""
    module = importlib.import_module("lockstep._core").Module
    return issubclass(cls, module) and cls is not module and cls.forward is module.forward


def attributes_of(cls):
    """The names that methods of a Python class assign to self."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return []
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                names[node.attr] = None
    return list(names)


def modules():
    """All modules of the package, imported, those that C++ defines as well."""
    package = importlib.import_module("lockstep")
    found = {"lockstep": package}
    for info in pkgutil.walk_packages(package.__path__, "lockstep."):
        found[info.name] = importlib.import_module(info.name)
    pending = [found["lockstep._core"]]
    while pending:
        module = pending.pop()
        found[module.__name__] = module
        for name, value in vars(module).items():
            if isinstance(value, types.ModuleType) and value.__name__ == f"{module.__name__}.{name}":
                sys.modules.setdefault(value.__name__, value)
                pending.append(value)
    return found


def main(folder):
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    found = modules()
    for name, module in sorted(found.items()):
        is_package = hasattr(module, "__path__") or any(other.startswith(name + ".") for other in found)
        path = pathlib.Path(folder, *name.split("."))
        path = path / "__init__.pyi" if is_package else path.with_suffix(".pyi")
        path.parent.mkdir(exist_ok=True)
        text = Stub(module).define_module()
        ast.parse(text)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve())
