"""Writes the comments of the public headers for the docstrings of Python: make_documentation.py ROOT OUTPUT

The comment above a class or a function of lockstep/lockstep.h's headers is its documentation, and the opening comment
of the header for what has none. OUTPUT is C++: documentation() of src/signatures.h.
"""

import pathlib
import re
import sys

DECLARATION = re.compile(r"^(?:template <.*>\s*)?(?:(?:class|struct) (?P<type>\w+)[ :;{]|"
                         r"inline constexpr \w+ (?P<object>\w+)\{|"
                         r"(?:\[\[nodiscard\]\] )?(?:inline |constexpr )*[\w:<>,&* ]+?[ &*](?P<function>\w+)\()")


def comments(text):
    """Yield (name, comment) of the declarations at the outermost level."""
    opening, comment, above = [], [], []
    for number, line in enumerate(text.split("\n")):
        if line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
            continue
        if number == len(comment) and comment:
            opening, comment = comment, []
        found = DECLARATION.match(line)
        if found and not line.startswith(("using ", "return ", "namespace ", "#", "}", " ")):
            # A comment above several functions is about all of them.
            above = comment or above
            text = above or opening
            if found["type"] and len(above) == 1 and opening:  # "Images [N, C, H, W].", and what all kinds share
                text = [*above, "", *opening]
            yield found["type"] or found["object"] or found["function"], text, bool(above)
        elif not line.startswith(("template ", " ")) and line:
            above = []
        if not line:
            above = []
        comment = []


def main(root, output):
    root, found = pathlib.Path(root), {}
    for header in re.findall(r'#include "(.*)"', (root / "lockstep/lockstep.h").read_text()):
        for name, comment, own in comments((root / header).read_text()):
            if comment and not name.endswith("Options") and (name not in found or own and not found[name][1]):
                found[name] = ("\n".join(comment).strip(), own)
    lines = ['#include "signatures.h"', "", "#include <algorithm>", "#include <utility>", "",
             "namespace lockstep::python {",
             "namespace {", "",
             "constexpr std::pair<std::string_view, std::string_view> kComments[] = {"]
    lines += [f'    {{"{name}", R"~({text})~"}},' for name, (text, _) in sorted(found.items())]
    lines += ["};", "", "}  // namespace", "", "std::string_view documentation(std::string_view name) {",
              "  const auto at = std::ranges::lower_bound(kComments, name, {}, [](const auto& c) { return c.first; });",
              "  return at != std::end(kComments) && at->first == name ? at->second : std::string_view();", "}", "",
              "}  // namespace lockstep::python", ""]
    output, text = pathlib.Path(output), "\n".join(lines)
    if not output.exists() or output.read_text() != text:
        output.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
