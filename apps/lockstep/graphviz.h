// Pictures by Graphviz, which is a program of its own.
#pragma once

#include <string>

namespace lockstep::app {

// Runs `dot -Tsvg`. Throws if it is not installed, or with what it complains about.
std::string svg_of_dot(const std::string& dot);

}  // namespace lockstep::app
