// Error messages for arguments that no option takes.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

// Returns "not expected: --modle mlp; did you mean --model? (see lockstep train --help)" for the command given in
// `app`. For words before a command's name: "not expected before train: --model mlp (see lockstep --help)".
std::string unexpected_arguments(const CLI::App& app);

// Returns the name most similar to `word`; empty if none is similar enough.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace lockstep::app
