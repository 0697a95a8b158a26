// Draws pictures with Graphviz, a separate program.
#pragma once

#include <string>

namespace lockstep::app {

// Runs `dot -Tsvg`. Throws if it is not installed, or with its error message.
std::string svg_of_dot(const std::string& dot);

}  // namespace lockstep::app
