// Errors about arguments that no option takes.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace lockstep::app {

// "not expected: --modle mlp; did you mean --model? (see lockstep train --help)", for the command given in `app`. Words
// before a command's name: "not expected before train: --model mlp (see lockstep --help)".
std::string unexpected_arguments(const CLI::App& app);

}  // namespace lockstep::app
