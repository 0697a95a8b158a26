// The frame of a program of commands: it parses the command line, runs the command, and reports errors.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::app {

// Returns the exit status.
using Command = std::function<int()>;
using Commands = std::map<std::string, Command>;

// Unusable arguments: exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Runs the command that the arguments name. Each of the commands that `add` returns has a subcommand in the app that it
// gets. Exit status 0 on success, 1 on a failure at work, 2 on invalid arguments, 128 + the signal when a signal
// stopped it.
int run_command(int argc, char** argv, const std::function<Commands(CLI::App& app)>& add);

}  // namespace lockstep::app
