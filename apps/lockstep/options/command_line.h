// Frame of a program with commands: it parses the command line, runs the command, and reports errors.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <string>

namespace lockstep::app {

// Returns the exit status.
using Command = std::function<int()>;
using Commands = std::map<std::string, Command>;

// Runs the command that the arguments name. `add` adds a subcommand to the app for each command that it returns. Exit
// status 0 on success, 1 on a failure while the command runs, 2 on invalid arguments, 128 + the signal when a signal
// stopped it.
int run_command(int argc, char** argv, const std::function<Commands(CLI::App& app)>& add);

}  // namespace lockstep::app
